// SPDX-License-Identifier: Apache-2.0
#include "dataflow/machine/event_fd.h"

#include <gtest/gtest.h>
#include <poll.h>

namespace penstock {
namespace {

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
