// SPDX-License-Identifier: Apache-2.0
// An isolator of a simulated machine; its runs advance the clock.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "bench/isolate/isolator.h"
#include "tests/bench/isolate/simulated_machine.h"
#include "tests/bench/turned_clock.h"
#include "tests/support/thrown_by.h"

namespace penstock {

/// A step takes 10 ms on the device. A batch takes 40 ms of one thread of the feeder, so 20 ms of
/// the two that it has.
class IsolatorTest : public testing::Test {
 protected:
  IsolatorTest() {
    plan_.config.fake_location = "cpu";
    plan_.config.batch_size = 64;
    plan_.config.feeder_threads = 2;
    plan_.cores = 4;
    plan_.threads_matter = true;
    machine_.noise = 0.02;
    machine_.drift = 0.05;
  }

  isolate::Isolation isolate() {
    const auto run = [this](const RunConfig& config, const std::stop_token&) {
      RunResult result = machine_.run(config);
      if (change_) change_(result);
      clock_.turn(std::chrono::round<Nanoseconds>(
          std::chrono::duration<double>(machine_.wall_s(machine_.run(config)))));
      ran_.push_back(config);
      if (ran_.size() == stop_after_) stop_.request_stop();
      return result;
    };
    const auto meter = [this] { return look(); };
    return isolate::isolate(plan_, run, meter, clock_, listener_, stop_.get_token());
  }

  /// Other processes use `foreign_` per cent of the processors between any two readings.
  isolate::NoiseReading look() {
    all_ticks_ += 1000;
    isolate::NoiseReading reading;
    reading.time = clock_.now();
    reading.ticks.total = all_ticks_;
    reading.ticks.busy = all_ticks_ / 100 * foreign_;
    return reading;
  }

  double elapsed_s() const { return std::chrono::duration<double>(clock_.now() - Time{}).count(); }

  isolate::IsolatePlan plan_;
  SimulatedMachine machine_;
  TurnedClock clock_;
  isolate::IsolateListener listener_;
  std::stop_source stop_;
  std::uint64_t all_ticks_ = 0, foreign_ = 0;
  std::size_t stop_after_ = 100000;
  std::function<void(RunResult&)> change_;
  std::vector<RunConfig> ran_;
};

/// The stage to blame; one without a name if there is none.
inline analysis::StageFinding blamed(const isolate::Isolation& found) {
  const analysis::Diagnosis& diagnosis = found.diagnosis;
  return diagnosis.bottleneck ? diagnosis.stages.at(*diagnosis.bottleneck)
                              : analysis::StageFinding{};
}

inline bool covers(const statistics::Estimate& estimate, double truth) {
  return estimate.low <= truth && truth <= estimate.high;
}

}  // namespace penstock
