// SPDX-License-Identifier: Apache-2.0
// A step allocates no memory in steady state: the test counts every operator new of this program
// between two steps of the window.
#include <gtest/gtest.h>

#include <cstdint>
#include <stop_token>

#include "bench/run/runner.h"
#include "bench/run/trace/trace.h"
#include "tests/support/allocation_count.h"

namespace penstock {
namespace {

/// Counts over 360 steps, then stops the run. Steps are reported by a thread that may be late, so
/// the window must not end by itself.
class CountBetween final : public RunListener {
 public:
  void step(const StepReport& step) override {
    if (step.index == 20) first_ = allocation_count();
    if (step.index != 380) return;
    last_ = allocation_count();
    stop_.request_stop();
  }
  std::stop_token token() const { return stop_.get_token(); }
  std::int64_t count() const { return last_ - first_; }

 private:
  std::stop_source stop_;
  std::int64_t first_ = -1, last_ = 0;
};

TEST(SteadyState, AStepAllocatesNothing) {
  ASSERT_GT(allocation_count(), 0) << "this program's operator new is not the one in use";
  for (const char* feeder : {"gpu", "host", "cpu"}) {
    for (const char* update : {"replicated", "independent", "async-sgd"}) {
      for (const bool traced : {false, true}) {
        SteadyClock clock;
        RunConfig config;
        config.fake_location = feeder;
        config.variable_update = update;
        config.device = "emulated:img_per_s=20000";
        config.num_gpus = 2;
        config.batch_size = 8;
        config.num_batches = 4'000;
        CountBetween listener;
        Trace trace(4'000, clock);
        const RunResult result =
            Runner(config, clock, find_components(config), traced ? &trace : nullptr)
                .run(listener, listener.token());
        ASSERT_EQ(result.exit_code, 130) << result.reason;
        EXPECT_EQ(listener.count(), 0) << feeder << " " << update << (traced ? ", traced" : "");
      }
    }
  }
}

}  // namespace
}  // namespace penstock
