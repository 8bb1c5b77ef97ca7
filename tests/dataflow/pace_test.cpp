// SPDX-License-Identifier: Apache-2.0
#include "dataflow/pace.h"

#include <gtest/gtest.h>

#include "tests/support/virtual_clock.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

class PaceTest : public testing::Test {
 protected:
  VirtualClock clock_;
  const Clock::Participant here_{clock_};
  const Time begin_ = clock_.now();
};

TEST_F(PaceTest, DueTimesAreMultiplesOfTheRateHoweverMany) {
  Pace pace(clock_, 359);
  for (std::int64_t batch = 1; batch <= 100'000; ++batch) {
    pace.await(64, {});
    const double due = static_cast<double>(batch * 64) / 359 * 1e9;
    ASSERT_NEAR(static_cast<double>((clock_.now() - begin_).count()), due, 1) << batch;
  }
}

TEST_F(PaceTest, ALateBatchDoesNotDelayLaterBatches) {
  Pace pace(clock_, 100);
  clock_.sleep_until(begin_ + 15ms);
  pace.await(1, {});  // due at 10 ms
  EXPECT_EQ(clock_.now() - begin_, 15ms);
  pace.await(1, {});
  EXPECT_EQ(clock_.now() - begin_, 20ms);
}

TEST_F(PaceTest, IdleTimeOfTheConsumerIsNotMadeUpFor) {
  Pace pace(clock_, 100);
  clock_.sleep_until(begin_ + 105ms);
  pace.await(1, {});  // the one that was ready
  EXPECT_EQ(clock_.now() - begin_, 105ms);
  for (int batch = 1; batch <= 5; ++batch) {
    pace.await(1, {});
    EXPECT_EQ(clock_.now() - begin_, 105ms + batch * 10ms);
  }
}

TEST_F(PaceTest, NoRateIsNoLimit) {
  Pace pace(clock_, 0);
  for (int batch = 0; batch < 100; ++batch) pace.await(64, {});
  EXPECT_EQ(clock_.now(), begin_);
}

TEST(Pace, AStopEndsTheWait) {
  SteadyClock clock;
  Pace pace(clock, 1e-3);
  std::stop_source stop;
  stop.request_stop();
  pace.await(1, stop.get_token());
}

}  // namespace
}  // namespace penstock
