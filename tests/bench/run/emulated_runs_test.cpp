// SPDX-License-Identifier: Apache-2.0
// Whole runs on an emulated device with a simulated clock: slow copies, scattered step times,
// replay of a recorded run, and accelerator utilisation.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <span>

#include "bench/record/result_json.h"
#include "bench/run/runner.h"
#include "tests/bench/run/simulated_run.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

/// A batch of kTinyModel has 64 images of 2 x 2 x 3 pixels and their labels: 1024 bytes.
class EmulatedRuns : public SimulatedRun {
 protected:
  EmulatedRuns() {
    config_.fake_location = "host";
    config_.num_batches = 120;
    config_.num_warmup_batches = 20;
  }

  RunResult run(const std::string& device) {
    config_.device = device;
    return SimulatedRun::run();
  }
};

TEST_F(EmulatedRuns, CopiesBehindSlowerStepsAreHidden) {
  // 1024 bytes at 0.000256 GB/s take 4 ms, beside steps of 5 ms.
  const RunResult result = run("emulated:img_per_s=12800,copy_gb_per_s=0.000256");
  EXPECT_EQ(result.status, Status::ok) << result.reason;
  EXPECT_NEAR(result.img_per_s, 12800, 1e-6);
  EXPECT_EQ(result.device_idle_percent, 0);
  EXPECT_NEAR(result.facts.at("au_percent_rule"), 100, 1e-9);
  EXPECT_NEAR(result.facts.at("au_percent_dlio"), 100, 1e-9);
}

TEST_F(EmulatedRuns, SaysThatItsAccuraciesAreNone) {
  constexpr std::string_view kNone = "computes nothing";
  EXPECT_FALSE(mentions(run("emulated:img_per_s=12800").notes, kNone)) << "no accuracy is printed";
  config_.print_training_accuracy = true;
  EXPECT_TRUE(mentions(run("emulated:img_per_s=12800").notes, kNone));
}

TEST_F(EmulatedRuns, ExchangesNothingAndSaysNothingOfIt) {
  config_.num_gpus = 2;
  config_.all_reduce_spec = "xring";
  EXPECT_FALSE(mentions(run("emulated:img_per_s=12800").notes, "ranks exchange"));
}

TEST_F(EmulatedRuns, CopiesSlowerThanStepsSetThePace) {
  // A batch takes 8 ms: the device computes for 5 ms and is idle for 3 ms.
  for (const char* copy : {"memcpy", "none"}) {
    const RunResult result =
        run(std::string("emulated:img_per_s=12800,copy_gb_per_s=0.000128,copy=") + copy);
    EXPECT_NEAR(result.img_per_s, 64 / 8e-3, 1e-6) << copy;
    for (const double step : result.step_ms) EXPECT_NEAR(step, 8, 1e-9) << copy;
    for (std::size_t step = 1; step < result.step_ms.size(); ++step) {
      EXPECT_NEAR(result.device_idle_ms[step], 3, 1e-9) << copy;
    }
    EXPECT_NEAR(result.device_idle_percent, 100 * 3.0 / 8, 1e-9) << copy;
    EXPECT_NEAR(result.facts.at("au_percent_dlio"), 100 * 5.0 / 8, 1e-9) << copy;
    EXPECT_NEAR(result.facts.at("au_percent_rule"), 100 * 120 * 5.0 / (119 * 8 + 5), 1e-9) << copy;
    EXPECT_EQ(result.facts.at("au_pass_line_percent"), 90);
  }
}

TEST_F(EmulatedRuns, CopiesFromPageableMemoryHaveTheirOwnRate) {
  // 1024 bytes take 4 ms from pinned memory and 8 ms from pageable memory, beside steps of 5 ms.
  const std::string device =
      "emulated:img_per_s=12800,copy_gb_per_s=0.000256,pageable_gb_per_s=0.000128";
  config_.num_gpus = 2;
  for (const char* pages : {"transparent", "off"}) {
    config_.huge_pages = pages;
    config_.pinned_memory = true;
    const RunResult pinned = run(device);
    EXPECT_NEAR(pinned.img_per_s, 2 * 12800, 1e-6) << pages;
    EXPECT_TRUE(pinned.config.pinned_memory);
    config_.pinned_memory = false;
    const RunResult pageable = run(device);
    EXPECT_NEAR(pageable.img_per_s, 2 * 64 / 8e-3, 1e-6) << pages;
    EXPECT_FALSE(pageable.config.pinned_memory);
    EXPECT_EQ(pageable.facts.at("emulated_pageable_gb_per_s"), 0.000128);
    EXPECT_FALSE(mentions(pageable.notes, "--pinned-memory"));
  }
}

TEST_F(EmulatedRuns, ADeviceThatCopiesFromAllMemoryAlikeSaysSo) {
  config_.pinned_memory = false;
  const RunResult result = run("emulated:img_per_s=12800");
  EXPECT_NEAR(result.img_per_s, 12800, 1e-6);
  EXPECT_TRUE(mentions(result.notes, "--pinned-memory has no effect"));
}

TEST_F(EmulatedRuns, GradientsAndWeightsTravelIfTheWeightsLieInHostMemory) {
  config_.fake_location = "gpu";
  config_.classes = 10;
  std::size_t bytes = 0;
  Graph graph(kTinyModel.image);
  kTinyModel.build(graph, config_.classes);
  for (const ParameterSpec& spec : graph.parameters()) {
    bytes += sizeof(float) * static_cast<std::size_t>(spec.count());
  }
  const double copy_ms = static_cast<double>(bytes) / 0.000256e9 * 1e3;
  ASSERT_GT(copy_ms, 1);
  for (const char* copy : {"memcpy", "none"}) {
    for (const char* update : {"parameter_server:memory=host",
                               "parameter_server:memory=host,placement=greedy", "replicated"}) {
      config_.variable_update = update;
      const double step_ms = 5 + (update == std::string("replicated") ? 0 : 2 * copy_ms);
      for (const std::int32_t devices : {1, 2}) {
        config_.num_gpus = devices;
        const RunResult result =
            run(std::string("emulated:img_per_s=12800,copy_gb_per_s=0.000256,copy=") + copy);
        EXPECT_EQ(result.status, Status::ok) << result.reason;
        for (const double step : result.step_ms) EXPECT_NEAR(step, step_ms, 1e-5) << update << copy;
      }
    }
  }
}

TEST_F(EmulatedRuns, DevicesHaveACopyEngineEach) {
  config_.num_gpus = 2;
  const RunResult result = run("emulated:img_per_s=12800,copy_gb_per_s=0.000128");
  EXPECT_NEAR(result.img_per_s, 2 * 64 / 8e-3, 1e-6);
}

TEST_F(EmulatedRuns, BatchesThatLieOnTheDeviceNeedNoCopies) {
  config_.fake_location = "gpu";
  const RunResult result = run("emulated:img_per_s=12800,copy_gb_per_s=0.000128");
  EXPECT_NEAR(result.img_per_s, 12800, 1e-6);
}

TEST_F(EmulatedRuns, StagingsCpuTimeIsThatOfTheCopies) {
  EXPECT_GT(run("emulated:img_per_s=12800").staging_cpu_s, 0);
  config_.fake_location = "gpu";
  EXPECT_EQ(run("emulated:img_per_s=12800").staging_cpu_s, 0);
}

TEST_F(EmulatedRuns, ScatteredStepsRepeatWithTheSeed) {
  const std::string device = "emulated:img_per_s=12800,distribution=lognormal,cv=0.2";
  const RunResult first = run(device), second = run(device);
  EXPECT_EQ(first.step_ms, second.step_ms);
  config_.seed = 2;
  EXPECT_NE(run(device).step_ms, first.step_ms);
}

TEST_F(EmulatedRuns, ARecordedRunIsReplayedWithItsOwnTimesNotItsFeeders) {
  // Recorded with copies that make the device wait, and replayed without copies.
  const RunResult recorded =
      run("emulated:img_per_s=12800,distribution=uniform,cv=0.1,copy_gb_per_s=0.000128");
  EXPECT_GT(recorded.device_idle_percent, 30);
  const TempFolder folder;
  const std::string text = to_json(recorded).dump();
  const auto bytes = std::as_bytes(std::span(text));
  folder.write("run.json", {bytes.begin(), bytes.end()});
  config_.num_warmup_batches = 0;
  config_.fake_location = "gpu";
  const RunResult replayed = run("emulated:trace=" + (folder / "run.json").string());
  ASSERT_EQ(replayed.step_ms.size(), 120U);
  EXPECT_EQ(replayed.facts.at("emulated_trace_steps"), 119);
  for (std::size_t step = 0; step + 1 < recorded.step_ms.size(); ++step) {
    const double own = recorded.step_ms[step + 1] - recorded.device_idle_ms[step + 1];
    EXPECT_NEAR(replayed.step_ms[step], own, 1e-5) << step;
  }
  ASSERT_FALSE(replayed.notes.empty());
  EXPECT_TRUE(says(replayed.notes.front(), "replays 119 step times"));
}

}  // namespace
}  // namespace penstock
