// SPDX-License-Identifier: Apache-2.0
#include "dataflow/machine/file_descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>

namespace penstock {
namespace {

int open_null() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }
bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(FileDescriptor, ClosesAtItsEndAndWhenItTakesAnother) {
  const int first = open_null(), second = open_null();
  {
    FileDescriptor owner(first);
    owner = FileDescriptor(second);
    EXPECT_FALSE(is_open(first));
    EXPECT_EQ(owner.get(), second);
    EXPECT_TRUE(owner && is_open(second));
  }
  EXPECT_FALSE(is_open(second));
}

TEST(FileDescriptor, LeavesAReleasedOrMovedOneOpen) {
  FileDescriptor owner(open_null());
  FileDescriptor next(std::move(owner));
  EXPECT_FALSE(owner);  // NOLINT: reads it after the move
  const FileDescriptor last(next.release());
  next.reset();
  EXPECT_TRUE(!next && is_open(last.get()));
}

}  // namespace
}  // namespace penstock
