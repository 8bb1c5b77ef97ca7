// SPDX-License-Identifier: Apache-2.0
#include "dataflow/machine/file_descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

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

bool is_readable(const EventFd& event) {
  pollfd item{event.get(), POLLIN, 0};
  return poll(&item, 1, 0) == 1;
}

TEST(EventFd, StaysReadableFromTheFirstSignalUntilItIsDrained) {
  const EventFd event;
  event.drain();
  EXPECT_FALSE(is_readable(event));
  event.signal();
  event.signal();
  EXPECT_TRUE(is_readable(event) && is_readable(event));
  event.drain();
  EXPECT_FALSE(is_readable(event));
}

}  // namespace
}  // namespace penstock
