// SPDX-License-Identifier: Apache-2.0
#include "dataflow/stage_timer.h"

#include <gtest/gtest.h>

#include "tests/support/virtual_clock.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

class Stage : public ::testing::Test {
 protected:
  /// Only the calling thread advances time.
  void pass(Nanoseconds time) { clock_.sleep_until(clock_.now() + time); }

  VirtualClock clock_;
  const Clock::Participant participant_{clock_};
  Probe probe_;
};

TEST_F(Stage, CountsAllItemsAndTimesOneInSoMany) {
  StageCounters& counters = probe_.stage({"decode", "decode threads", 2});
  StageTimer first(counters, clock_, 4, 0), second(counters, clock_, 4, 5);
  for (int i = 0; i < 10; ++i) {
    for (StageTimer* timer : {&first, &second}) {
      StageTimer::Item item(*timer);
      pass(3ms);
      item.done(2, 100);
    }
  }
  EXPECT_EQ(counters.items.value(), 20);
  EXPECT_EQ(counters.images.value(), 40);
  EXPECT_EQ(counters.bytes.value(), 2000);
  EXPECT_EQ(counters.timed_items.value(), 3 + 3);  // 0, 4, 8 and 1, 5, 9
  EXPECT_EQ(counters.wall_ns.value(), 6 * 3'000'000);
}

TEST_F(Stage, AnItemThatIsNotDoneIsNotCounted) {
  StageCounters& counters = probe_.stage({"decode", "decode threads"});
  StageTimer timer(counters, clock_, 2);
  for (int i = 0; i < 3; ++i) {
    const StageTimer::Item item(timer);
    pass(1ms);
  }
  EXPECT_EQ(counters.items.value(), 0);
  StageTimer::Item item(timer);
  pass(5ms);
  item.restart();
  pass(2ms);
  item.done(1, 1);
  EXPECT_EQ(counters.timed_items.value(), 1);
  EXPECT_EQ(counters.wall_ns.value(), 2'000'000);
}

TEST_F(Stage, WaitsAreExactAlsoWhileTheyLast) {
  StageCounters& counters = probe_.stage({"copy", "stager"});
  const StageTimer timer(counters, clock_);
  {
    const auto wait = timer.wait_in();
    pass(2ms);
    const auto beside = timer.wait_in();
    EXPECT_EQ(counters.wait_in.until(clock_.now()).ns, 2'000'000);
    pass(1ms);
    EXPECT_EQ(counters.wait_in.until(clock_.now()).ns, 4'000'000);
  }
  pass(7ms);
  counters.wait_in.add(1ms);
  EXPECT_EQ(counters.wait_in.until(clock_.now()).ns, 5'000'000);
  EXPECT_EQ(counters.wait_in.until(clock_.now()).waits, 3);
  EXPECT_EQ(counters.wait_out.until(clock_.now()).ns, 0);
}

TEST_F(Stage, ThreadsOfAllThatRunItAddUp) {
  StageCounters& counters = probe_.stage({"copy", "stager"});
  EXPECT_EQ(&probe_.stage({"copy", "stager"}), &counters);
  EXPECT_NE(&probe_.stage({"copy", "another"}), &counters);
  EXPECT_EQ(counters.stage.threads, 2);
}

TEST_F(Stage, WithoutInstrumentsNothingIsCounted) {
  Probe silent(false);
  StageCounters& counters = silent.stage({"copy", "stager"});
  StageTimer timer(counters, clock_);
  {
    const auto wait = timer.wait_out();
    StageTimer::Item item(timer);
    pass(1ms);
    EXPECT_EQ(item.done(1, 1), 0ns);
  }
  EXPECT_FALSE(timer.is_on());
  EXPECT_EQ(counters.items.value(), 0);
  EXPECT_EQ(counters.wait_out.until(clock_.now()).waits, 0);
}

}  // namespace
}  // namespace penstock
