// SPDX-License-Identifier: Apache-2.0
// Runs whose feeder finds its number of threads during warm-up. They use a simulated clock and a
// feeder whose time per batch is divided by its threads.
#include <gtest/gtest.h>

#include "bench/run/runner.h"
#include "dataflow/images/thread_tuner.h"
#include "tests/bench/run/simulated_run.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

class Growing final : public Feeder {
 public:
  explicit Growing(const FeederContext& context)
      : clock_(context.clock),
        work_(context.options.duration("work")),
        never_(context.options.flag("never")),
        tuner_(context.threads, context.probe) {}

  bool is_settled() const override { return !never_ && tuner_.is_settled(); }
  void settle() override { tuner_.settle(); }
  void run(BatchRing& out, std::stop_token stop) override {
    tuner_.begin(out);
    std::int32_t threads = 1;
    while (WriteLease lease = out.acquire(stop)) {
      clock_.sleep_until(clock_.now() + work_ / threads);
      std::move(lease).publish();
      if (!never_) threads = tuner_.observe(clock_.now());
    }
  }

 private:
  Clock& clock_;
  const Nanoseconds work_;
  const bool never_;
  ThreadTuner tuner_;
};

constexpr OptionSpec kOptions[] = {{"work", "17ms", "time of one thread for a batch"},
                                   {"never", "false", "does not settle"}};
constexpr FeederEntry kGrowing{
    .name = "growing",
    .options = kOptions,
    .make = make_feeder<Growing>,
};

class SettlingTest : public SimulatedRun {
 protected:
  SettlingTest() {
    config_.device = "emulated:img_per_s=12800,copy=none";  // 5 ms for 64 images
    config_.fake_location = "growing";
    config_.feeder_threads = 8;
    config_.num_batches = 100;
    config_.num_warmup_batches = 3;
  }

  RunResult run() { return SimulatedRun::run(&kGrowing); }
};

TEST_F(SettlingTest, TheWindowBeginsOnceThreadsAreEnough) {
  const RunResult result = run();
  EXPECT_EQ(result.status, Status::ok) << result.reason;
  EXPECT_NEAR(result.img_per_s, 12800, 1e-6);
  EXPECT_EQ(result.step_ms.size(), 100U);
  EXPECT_GT(result.discarded_steps, 3);
  EXPECT_EQ(result.facts.at("decode_threads_chosen"), 4);
  EXPECT_TRUE(mentions(result.notes, "decode threads: 4 (auto: "));
}

TEST_F(SettlingTest, OrOnceThereAreNoMore) {
  config_.feeder_threads = 3;
  const RunResult result = run();
  EXPECT_NEAR(result.img_per_s, 64 * 3 / 17e-3, 200);
  EXPECT_TRUE(mentions(result.notes, "and all threads are in use"));
}

TEST_F(SettlingTest, ItDoesNotWaitForEver) {
  config_.fake_location = "growing:never=true";
  const RunResult result = run();
  EXPECT_EQ(result.step_ms.size(), 100U);
  const double discarded_s = static_cast<double>(result.discarded_steps) * 17e-3;
  EXPECT_GE(discarded_s, 30);
  EXPECT_LE(discarded_s, 31);
  EXPECT_TRUE(
      mentions(result.notes, "decode threads: 1 (auto: not settled when the window began)"));
}

/// Stages and rings report only the window, even if the ring was watched before it.
TEST_F(SettlingTest, WhatWasWatchedBeforeTheWindowIsForgotten) {
  const RunResult result = run();
  ASSERT_FALSE(result.queues.empty());
  EXPECT_EQ(result.queues.front().consumer_wait_s, 0);
  config_.instrument = false;
  EXPECT_TRUE(run().queues.empty());
}

}  // namespace
}  // namespace penstock
