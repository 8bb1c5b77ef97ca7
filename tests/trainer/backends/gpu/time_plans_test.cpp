// SPDX-License-Identifier: Apache-2.0
// Tests the timing of engines and of copies on the host driver's clock.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "dataflow/error.h"
#include "tests/support/gpu/host_driver.h"
#include "tests/support/thrown_by.h"
#include "trainer/backends/gpu/dnn_patterns.h"
#include "trainer/backends/gpu/time_plans.h"

namespace penstock::gpu {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

const DnnGraph kGraph =
    conv_forward({.images = 1, .channels = 8, .height = 2, .width = 2, .filters = 8}).graph;

/// As many candidates as the driver offers.
std::vector<Candidate> candidates_of(Driver& driver) {
  return driver.planner().candidates(kGraph, {}, 100);
}

class TimedPlans : public testing::Test {
 protected:
  /// A driver with engine 0, then 2 and higher. `cost` gives the time of each.
  std::unique_ptr<HostDriver> driver_of(std::int64_t engines,
                                        std::function<nanoseconds(std::int64_t engine)> cost,
                                        nanoseconds enqueueing = {}) {
    return std::make_unique<HostDriver>(
        HostMachineOptions{.engines = engines,
                           .engine_cost =
                               [this, cost = std::move(cost)](std::int64_t engine) {
                                 ++runs_[engine];
                                 ++run_;
                                 return cost(engine);
                               },
                           .enqueueing = enqueueing});
  }
  PlanChoice fastest(HostDriver& driver, bool records = true) {
    PlanBook book(driver.facts(), {});
    return fastest_of(kGraph, candidates_of(driver), driver, book, records);
  }

  int run_ = 0;  // run number, over all engines
  std::map<std::int64_t, int> runs_;
};

TEST_F(TimedPlans, CopiesCountWhatTheyReadAndWrite) {
  HostDriver driver;  // takes a nanosecond per byte, plus one
  EXPECT_NEAR(time_copies(driver), 1000, 0.1);
}

TEST_F(TimedPlans, TheHostsTimeToEnqueueACopyDoesNotCount) {
  HostDriver driver({.memory_bytes = 20'000 * 64, .enqueueing = microseconds(20)});
  EXPECT_NEAR(time_copies(driver), 1000, 0.1);
}

TEST_F(TimedPlans, OperandsAreFilledFromFewBytesOfTheHost) {
  constexpr std::size_t kBytes = std::size_t{16} << 20, kRuns = 27;
  std::size_t moved = 0;
  HostDriver driver({.memory_bytes = 64 * kBytes, .cost = [&](std::size_t bytes) {
                       moved += bytes;
                       return nanoseconds(bytes + 1);
                     }});
  time_copies(driver);
  EXPECT_EQ(driver.pageable_bytes(), std::size_t{4} << 20);
  EXPECT_EQ(moved, 2 * kBytes * (1 + kRuns)) << "each byte is written once before the runs";
}

TEST_F(TimedPlans, RunsThatAreShorterThanTheHostsTimeToEnqueueThemAreTimedToo) {
  const auto driver = driver_of(
      3, [](std::int64_t engine) { return microseconds(8 - engine); }, microseconds(20));
  const PlanChoice choice = fastest(*driver);
  EXPECT_EQ(choice.engine.engine, 3);
  EXPECT_NEAR(choice.microseconds, 5, 0.01);
}

TEST_F(TimedPlans, RunsThatCannotBeRecordedAreTimedWithoutARecording) {
  for (const auto& [call, nth] :
       {std::pair{"begin_capture", 1}, {"execute", 5}, {"end_capture", 1}}) {
    SCOPED_TRACE(call);
    const auto driver = driver_of(
        2, [](std::int64_t engine) { return microseconds(engine == 0 ? 30 : 50); },
        microseconds(20));
    PlanBook book(driver->facts(), {});
    const std::vector<Candidate> candidates = candidates_of(*driver);
    driver->fail_at(call, nth);
    const PlanChoice choice = fastest_of(kGraph, candidates, *driver, book);
    EXPECT_EQ(choice.engine.engine, 0);
    EXPECT_NEAR(choice.microseconds, 30, 0.01);
    EXPECT_FALSE(book.has_failed(kGraph, candidates[0].choice));
  }
}

TEST_F(TimedPlans, WithoutRecordingNothingIsRecorded) {
  const auto driver = driver_of(2, [](std::int64_t engine) { return microseconds(9 - engine); });
  driver->fail_at("begin_capture", 1);
  EXPECT_EQ(fastest(*driver, false).engine.engine, 2);
  const StreamHandle stream = driver->make_stream();
  EXPECT_THROW(driver->begin_capture(stream), DeviceError) << "the first recording";
  driver->destroy(stream);
}

TEST_F(TimedPlans, TheHostsTimeToEnqueueARunDoesNotCount) {
  const auto driver = driver_of(
      1, [](std::int64_t) { return microseconds(30); }, microseconds(20));
  EXPECT_NEAR(fastest(*driver).microseconds, 30, 0.01);
}

TEST_F(TimedPlans, TheFastestEngineIsChosen) {
  const auto driver = driver_of(
      6, [](std::int64_t engine) { return microseconds(engine == 4 ? 90 : 100 + engine); });
  const PlanChoice choice = fastest(*driver);
  EXPECT_EQ(choice.engine.engine, 4);
  EXPECT_NEAR(choice.microseconds, 90, 0.01);
}

/// Engine 2 is faster, but the clock rate has dropped when its turn comes.
TEST_F(TimedPlans, AClockThatGoesDownFavoursNoEngine) {
  const auto driver = driver_of(2, [this](std::int64_t engine) {
    const int cold = engine == 0 ? 100 : 95;
    return microseconds(run_ <= 11 ? cold : cold * 6 / 5);
  });
  const PlanChoice choice = fastest(*driver);
  EXPECT_EQ(choice.engine.engine, 2);
  EXPECT_NEAR(choice.microseconds, 114, 0.01);
}

TEST_F(TimedPlans, ASlowEngineIsDroppedAfterItsFirstRuns) {
  const auto driver =
      driver_of(2, [](std::int64_t engine) { return microseconds(engine == 0 ? 10 : 1000); });
  EXPECT_EQ(fastest(*driver).engine.engine, 0);
  EXPECT_LE(runs_[2], 2);
}

TEST_F(TimedPlans, WhatThePlannerFinalisedIsNotBuiltAgain) {
  const auto driver = driver_of(3, [](std::int64_t) { return microseconds(10); });
  driver->fail_at("build", 1);
  EXPECT_NO_THROW(fastest(*driver));
}

TEST_F(TimedPlans, AnEngineThatFailsIsEnteredInTheBookAndTheOthersAreTimed) {
  const auto driver = driver_of(3, [](std::int64_t engine) { return microseconds(10 + engine); });
  PlanBook book(driver->facts(), {});
  const std::vector<Candidate> candidates = candidates_of(*driver);
  driver->fail_at("execute", 1);
  EXPECT_EQ(fastest_of(kGraph, candidates, *driver, book).engine.engine, 2);
  EXPECT_TRUE(book.has_failed(kGraph, candidates[0].choice));
  EXPECT_FALSE(book.has_failed(kGraph, candidates[1].choice));
}

/// Earlier runs may still be in progress when a later run cannot be enqueued.
TEST_F(TimedPlans, APlanThatFailsOutlivesItsRuns) {
  std::weak_ptr<const DnnPlan> failing;
  int orphans = 0;
  const auto driver = driver_of(2, [&](std::int64_t engine) {
    orphans += engine == 0 && failing.expired() ? 1 : 0;
    return microseconds(200);
  });
  PlanBook book(driver->facts(), {});
  std::vector<Candidate> candidates = candidates_of(*driver);
  failing = candidates[0].plan;
  driver->fail_at("execute", 5);
  EXPECT_EQ(fastest_of(kGraph, std::move(candidates), *driver, book).engine.engine, 2);
  EXPECT_EQ(runs_[0], 4);
  EXPECT_EQ(orphans, 0);
}

TEST_F(TimedPlans, WhenADeviceIsLostTheErrorSaysSoAndTheNextRunLeavesThatEngineOut) {
  const auto driver = driver_of(3, [](std::int64_t engine) -> nanoseconds {
    if (engine == 2) throw DeviceError("an illegal memory access");  // every later call fails
    return microseconds(10);
  });
  PlanBook book(driver->facts(), {});
  const std::vector<Candidate> candidates = candidates_of(*driver);
  const std::string text =
      thrown_by<DeviceLost>([&] { fastest_of(kGraph, candidates, *driver, book); });
  EXPECT_TRUE(says(text, "engine 2"));
  EXPECT_TRUE(says(text, "fails every call of this process (an illegal memory access)"));
  for (const Candidate& candidate : candidates) {
    EXPECT_EQ(book.has_failed(kGraph, candidate.choice), candidate.choice.engine == 2);
  }
}

}  // namespace
}  // namespace penstock::gpu
