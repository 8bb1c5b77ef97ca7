// SPDX-License-Identifier: Apache-2.0
// A folder for the sockets of a zmq-consume feeder.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "tests/feeders/remote/zmq_fixture.h"
#include "tests/support/patience.h"
#include "tests/support/thrown_by.h"

namespace penstock {

inline bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

/// Is batch `index` next? False on a timeout of the consumer.
inline bool comes(Consumer& consumer, std::uint64_t index) {
  try {
    EXPECT_EQ(consumer.next(), index);
    return true;
  } catch (const TimeoutError&) {
    return false;
  }
}

class ZmqConsume : public ::testing::Test {
 protected:
  std::string file() const { return folder_.path().string() + "/feed"; }
  std::string endpoint() const { return "ipc://" + file(); }

  TempFolder folder_;
};

}  // namespace penstock
