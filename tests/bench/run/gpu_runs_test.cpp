// SPDX-License-Identifier: Apache-2.0
// Whole runs on GPUs that the host simulates: faults during a run, and gradients that overflow
// fp16.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <utility>

#include "tests/bench/run/simulated_run.h"
#include "tests/support/gpu/gpu_on_host.h"
#include "tests/support/gpu/host_driver.h"
#include "tests/support/training_fixture.h"
#include "trainer/backends/gpu/backend.h"

namespace penstock {
namespace {

constexpr int kFailingStep = 8;

std::unique_ptr<Backend> make_gpus(const Options& options, const gpu::HostMachineOptions& machine,
                                   std::function<void(gpu::HostDriver&)> on_open = {}) {
  const auto library = std::make_shared<gpu::HostDriverLibrary>(machine);
  library->on_open = std::move(on_open);
  return std::make_unique<gpu::GpuBackend>(library, options);
}

constexpr BackendEntry gpu_entry(decltype(BackendEntry::make) make) {
  return {.name = "gpu", .options = gpu::kOptions, .make = make};
}

/// One GPU, which fails when the given step is launched. Timing engines launches recordings, too.
constexpr BackendEntry kFailing = gpu_entry([](const Options& options, Clock&) {
  return make_gpus(options, {},
                   [](gpu::HostDriver& driver) { driver.fail_at("launch_graph", kFailingStep); });
});

constexpr std::int32_t kGpus = 3;

constexpr BackendEntry kSeveral = gpu_entry(
    [](const Options& options, Clock&) { return make_gpus(options, {.devices = kGpus}); });

/// GPUs that a library connects.
constexpr BackendEntry kConnected = gpu_entry([](const Options& options, Clock&) {
  return make_gpus(options, {.devices = kGpus, .connects = true});
});

/// Several GPUs. All ranks except the first wait in compile() until all of them are there.
class Meeting final : public Backend {
 public:
  struct Compilations {
    std::mutex mutex;
    std::condition_variable changed;
    std::int32_t begun = 0, ended = 0;
    bool first_was_alone = true, others_met = true;
  };

  Meeting(std::unique_ptr<Backend> inner, Compilations& seen)
      : inner_(std::move(inner)), seen_(seen) {}
  std::int32_t device_count() const override { return inner_->device_count(); }
  std::unique_ptr<Device> open(std::int32_t ordinal) override { return inner_->open(ordinal); }
  std::unique_ptr<Executable> compile(const Graph& graph, const ExecutableSpec& spec,
                                      Device& device) override {
    {
      std::unique_lock lock(seen_.mutex);
      const std::int32_t before = seen_.begun++;
      if (before > 0 && seen_.ended == 0) seen_.first_was_alone = false;
      seen_.changed.notify_all();
      const auto all_begun = [this] { return seen_.begun == kGpus; };
      if (before > 0 && !seen_.changed.wait_for(lock, std::chrono::seconds(20), all_begun)) {
        seen_.others_met = false;
      }
    }
    auto executable = inner_->compile(graph, spec, device);
    const std::lock_guard lock(seen_.mutex);
    ++seen_.ended;
    return executable;
  }
  std::unique_ptr<Optimizer> make_optimizer(const OptimizerChoice& choice,
                                            const ExecutableSpec& spec, Device& device) override {
    return inner_->make_optimizer(choice, spec, device);
  }
  std::unique_ptr<CollectiveGroup> make_group(std::span<Device* const> devices,
                                              const GroupSpec& spec, Clock& clock,
                                              std::stop_token stop) override {
    return inner_->make_group(devices, spec, clock, std::move(stop));
  }

 private:
  const std::unique_ptr<Backend> inner_;
  Compilations& seen_;
};

class GpuRuns : public TrainingFixture {
 protected:
  GpuRuns() {
    config_.cache_dir = (folder_ / "cache").string();
    config_.model = "tiny_cnn";
    config_.image_size = 8;
  }

  RunResult run_on(const BackendEntry& backend, std::int32_t ranks = 1) {
    return run_on(backend, ranks, "gpu:replicas=" + std::to_string(ranks));
  }
  RunResult run_on(const BackendEntry& backend, std::int32_t ranks, const std::string& device) {
    config_.num_gpus = ranks;
    config_.device = device;
    Runner::Components parts = components();
    parts.backend = &backend;
    RunListener silent;
    return Runner(config_, clock_, parts).run(silent, {});
  }
};

TEST_F(GpuRuns, PageableMemoryAndPlanarBatchesLeaveTheLossesAlone) {
  const RunResult plain = completed(run_on(kSeveral, kGpus, "gpu"));
  config_.pinned_memory = false;
  const RunResult pageable = run_on(kSeveral, kGpus, "gpu");
  EXPECT_EQ(pageable.losses, plain.losses);
  config_.data_format = "NCHW";
  EXPECT_EQ(run_on(kSeveral, kGpus, "gpu").losses, plain.losses);
}

TEST_F(GpuRuns, WeightsInHostMemoryTrainAndResumeAsOnTheDevice) {
  config_.optimizer = "momentum";
  config_.weight_decay = 0.01;
  config_.init_learning_rate = 0;  // the schedule has all rates
  config_.piecewise_learning_rate_schedule = "0.05;0.2;0.02";
  config_.fp16_enable_auto_loss_scale = true;
  config_.fp16_inc_loss_scale_every_n = 3;
  for (const char* precision : {"fp32", "fp16"}) {
    SCOPED_TRACE(precision);
    config_.precision = precision;
    config_.train_dir.clear();
    config_.num_batches = 20;
    config_.variable_update = "parameter_server";
    const RunResult on_gpus = run_on(kSeveral, kGpus, "gpu");
    config_.variable_update = "parameter_server:memory=host";
    config_.eval_during_training_every_n_steps = 10;
    config_.eval_data_dir = config_.data_dir;
    const RunResult on_host = completed(run_on(kSeveral, kGpus, "gpu"));
    ASSERT_EQ(on_host.losses.size(), on_gpus.losses.size());
    for (std::size_t i = 0; i < on_gpus.losses.size(); ++i) {
      EXPECT_NEAR(on_host.losses[i], on_gpus.losses[i], 1e-3 * on_gpus.losses[i]) << i;
    }
    config_.train_dir = (folder_ / precision).string();
    config_.num_batches = 10;
    EXPECT_EQ(run_on(kSeveral, kGpus, "gpu").exit_code, 0);
    config_.num_batches = 20;  // with those before
    const RunResult rest = completed(run_on(kSeveral, kGpus, "gpu"));
    EXPECT_TRUE(std::ranges::equal(rest.losses, std::span(on_host.losses).last(10)));
    ASSERT_EQ(rest.evaluations.size(), 1U);
    EXPECT_EQ(rest.evaluations.front().top1, on_host.evaluations.back().top1);
  }
}

TEST_F(GpuRuns, LabelsThatAreRedrawnChangeTheLossOfConstantPixels) {
  config_.init_learning_rate = 1e-30;
  config_.device_slots = 1;
  config_.fake_location = "gpu";
  const RunResult constant = completed(run_on(kSeveral, 1, "gpu"));
  for (const double loss : constant.losses) EXPECT_EQ(loss, constant.losses.front());
  config_.fake_location = "gpu:labels=redrawn";
  const RunResult redrawn = completed(run_on(kSeveral, 1, "gpu"));
  EXPECT_GT(std::set<double>(redrawn.losses.begin(), redrawn.losses.end()).size(), 5U);
}

TEST_F(GpuRuns, ThroughNcclGradientsAreExchangedDuringBackwardAndTheRecordSaysWhatShows) {
  for (const char* precision : {"fp32", "fp16"}) {
    config_.precision = precision;
    config_.first_bucket_mib = 0.001;
    config_.bucket_mib = 0.01;
    const RunResult copies = run_on(kConnected, kGpus, "gpu:exchange=copies");
    const RunResult nccl = completed(run_on(kConnected, kGpus, "gpu"));
    EXPECT_EQ(nccl.losses, copies.losses) << precision;
    EXPECT_FALSE(copies.facts.contains("exchange_ms_per_step"));
    EXPECT_GT(nccl.facts.at("gradient_buckets"), 1);
    EXPECT_EQ(nccl.buckets.size(), nccl.facts.at("gradient_buckets"));
    EXPECT_GT(nccl.facts.at("exchange_ms_per_step"), 0);
    EXPECT_GE(nccl.facts.at("exchange_exposed_ms_per_step"), 0);
  }
}

TEST_F(GpuRuns, ACallThatFailsInMidRunExitsWith8AndKeepsTheStepsBeforeIt) {
  const RunResult result = run_on(kFailing, 1, "gpu:autotune=false");
  EXPECT_EQ(result.status, Status::failed);
  EXPECT_EQ(result.exit_code, 8);
  EXPECT_EQ(result.reason, "in step 8: launch_graph failed on host 0, as the test wants it to");
  EXPECT_EQ(result.step_ms.size(), std::size_t{kFailingStep - 1});
  EXPECT_EQ(result.losses.size(), std::size_t{kFailingStep - 1});
  EXPECT_GT(result.img_per_s, 0);
}

TEST_F(GpuRuns, AStopRequestEndsTheCompilation) {
  config_.device = "gpu";
  config_.fake_location = "gpu";
  Runner::Components parts = components();
  parts.backend = &gpu_on_host_backend;
  std::stop_source stop;
  stop.request_stop();
  EXPECT_TRUE(
      says(thrown_by<Error>([&] { Runner(config_, clock_, parts, nullptr, stop.get_token()); }),
           "stopped while tiny_cnn was compiled"));
}

TEST_F(GpuRuns, ARankThatFailsEndsTheOthersToo) {
  const RunResult result = run_on(kFailing, 3, "gpu:autotune=false,replicas=3");
  EXPECT_EQ(result.exit_code, 8);
  EXPECT_TRUE(says(result.reason, "in step 8: launch_graph failed"));
  EXPECT_LT(result.step_ms.size(), std::size_t{kFailingStep});
  EXPECT_TRUE(notes(
      result, "ranks exchange by built-in sums and copies (NCCL refuses ranks that share a GPU)"));
}

TEST_F(GpuRuns, RanksCompileSideBySideBehindTheFirst) {
  static Meeting::Compilations seen;
  const BackendEntry entry =
      gpu_entry([](const Options& options, Clock&) -> std::unique_ptr<Backend> {
        return std::make_unique<Meeting>(make_gpus(options, {.devices = kGpus}), seen);
      });
  const RunResult together = completed(run_on(entry, kGpus, "gpu"));
  EXPECT_TRUE(seen.first_was_alone);
  EXPECT_TRUE(seen.others_met);
  EXPECT_EQ(run_on(kSeveral, kGpus, "gpu").losses, together.losses);
}

TEST_F(GpuRuns, ACompilationThatFailsOnOneGpuOfSeveralEndsTheRunWithItsReason) {
  const BackendEntry entry = gpu_entry([](const Options& options, Clock&) {
    return make_gpus(options, {.devices = kGpus}, [](gpu::HostDriver& driver) {
      if (driver.facts().name == "host 1") driver.fail_at("execute", 1);
    });
  });
  EXPECT_TRUE(says(thrown_by<DeviceError>([&] { run_on(entry, kGpus, "gpu:autotune=false"); }),
                   "execute failed on host 1"));
}

TEST_F(GpuRuns, GradientsOf16BitsAreTheSameByCopiesAndThroughTheHost) {
  const std::vector<double> wide = run_on(kSeveral, 2, "gpu").losses;
  config_.gradient_wire = "fp16";
  const RunResult copies = completed(run_on(kSeveral, 2, "gpu:exchange=copies"));
  EXPECT_TRUE(notes(copies, "; gradients travel as fp16"));
  EXPECT_NE(copies.losses, wide);
  for (std::size_t i = 0; i < wide.size(); ++i) EXPECT_NEAR(copies.losses[i], wide[i], 0.02) << i;
  EXPECT_EQ(run_on(kSeveral, 2, "gpu:exchange=host").losses, copies.losses);
}

TEST_F(GpuRuns, ASpecThatAsksForNcclDoesNotRunWithoutIt) {
  config_.all_reduce_spec = "nccl";
  EXPECT_TRUE(says(thrown_by<Unavailable>([&] { run_on(kSeveral, 2, "gpu"); }),
                   "the host has no library that connects GPUs"));
}

TEST_F(GpuRuns, Fp16TrainsWithItsDefaultScaleAndTheCacheIsWhereItShouldBe) {
  config_.precision = "fp16";
  config_.num_batches = 40;
  const RunResult result = completed(run_on(gpu_on_host_backend));
  EXPECT_LT(result.losses.back(), 0.7 * result.losses.front());
  EXPECT_FALSE(result.counters.contains("skipped_steps"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "cache/gpu-plans-host-0.json"));
}

TEST_F(GpuRuns, GradientsThatOverflowStopTheRunWithWhatToType) {
  config_.precision = "fp16";
  config_.fp16_loss_scale = 1e9;
  const RunResult result = run_on(gpu_on_host_backend);
  EXPECT_EQ(result.status, Status::failed);
  EXPECT_EQ(result.exit_code, 8);
  EXPECT_TRUE(says(result.reason,
                   "gradients of step 1 of tiny_cnn in fp16 are not finite, its "
                   "update was skipped; lower --fp16-loss-scale, let it adapt itself with "
                   "--fp16-enable-auto-loss-scale, or go on with --on-nonfinite continue"));
}

TEST_F(GpuRuns, GradientsThatOverflowAreCountedOncePerStepAndLeaveTheWeights) {
  config_.precision = "fp16";
  config_.fp16_loss_scale = 1e9;
  config_.on_nonfinite = "continue";
  for (const std::int32_t ranks : {1, 2}) {
    const RunResult result = completed(run_on(gpu_on_host_backend, ranks));
    EXPECT_EQ(result.counters.at("skipped_steps"), 20) << ranks << " ranks";
    EXPECT_FALSE(result.counters.contains("nonfinite_steps"));
    for (const double loss : result.losses) EXPECT_TRUE(std::isfinite(loss));
    EXPECT_TRUE(std::ranges::any_of(result.notes, [](const auto& note) {
      return says(note, "gradients of step 1 of tiny_cnn in fp16") &&
             says(note, "later ones are only counted");
    }));
  }
}

TEST_F(GpuRuns, ALossScaleThatAdaptsItselfSkipsUntilGradientsFitAndIsRemembered) {
  config_.precision = "fp16";
  config_.fp16_loss_scale = 0x1p30;
  config_.fp16_enable_auto_loss_scale = true;
  config_.num_batches = 40;
  config_.train_dir = (folder_ / "checkpoints").string();
  for (const std::int32_t ranks : {1, 2}) {
    SCOPED_TRACE(ranks);
    config_.train_dir = (folder_ / std::to_string(ranks)).string();
    config_.num_batches = 40;
    const RunResult result = completed(run_on(gpu_on_host_backend, ranks));
    const std::int64_t skipped = result.counters.at("skipped_steps");
    EXPECT_GT(skipped, 5);
    EXPECT_LT(skipped, 25);
    const double scale = result.facts.at("loss_scale");
    EXPECT_EQ(scale, 0x1p30 / static_cast<double>(std::int64_t{1} << skipped));
    EXPECT_LT(result.losses.back(), 0.8 * result.losses.front());
    config_.num_batches = 44;
    const RunResult more = completed(run_on(gpu_on_host_backend, ranks));
    EXPECT_FALSE(more.counters.contains("skipped_steps")) << "it began with the scale it had";
    EXPECT_EQ(more.facts.at("loss_scale"), scale);
  }
}

TEST_F(GpuRuns, ALossScaleThatAdaptsItselfGrows) {
  config_.precision = "fp16";
  config_.fp16_loss_scale = 2;
  config_.fp16_enable_auto_loss_scale = true;
  config_.fp16_inc_loss_scale_every_n = 4;
  config_.num_batches = 15;
  const RunResult result = completed(run_on(gpu_on_host_backend));
  EXPECT_EQ(result.facts.at("loss_scale"), 16) << "doubled by the steps 5, 10 and 15";
}

TEST_F(GpuRuns, SpreadHomesRefuseALossScaleThatAdaptsItself) {
  config_.precision = "fp16";
  config_.fp16_enable_auto_loss_scale = true;
  config_.variable_update = "parameter_server:placement=greedy";
  EXPECT_TRUE(
      says(thrown_by<ConfigError>([&] { run_on(gpu_on_host_backend, 2); }), "placement=first"));
}

TEST_F(GpuRuns, EveryOptimizerTrains) {
  config_.num_batches = 30;
  const std::pair<const char*, double> rates[] = {
      {"sgd", 0.05}, {"momentum", 0.02}, {"rmsprop", 0.02}, {"adam", 0.01}, {"lars", 10}};
  for (const auto& [optimizer, rate] : rates) {
    config_.optimizer = optimizer;
    config_.init_learning_rate = rate;
    const RunResult result = completed(run_on(gpu_on_host_backend));
    EXPECT_LT(result.losses.back(), 0.8 * result.losses.front()) << optimizer;
  }
}

TEST_F(GpuRuns, TheFirstLossHasTheDecaysShareAlsoWhereAnUpdateAppliesNothingYet) {
  config_.weight_decay = 0.5;
  config_.num_batches = 1;
  const RunResult strong = completed(run_on(gpu_on_host_backend));
  config_.variable_update = "replicated:consistency=relaxed";
  EXPECT_EQ(run_on(gpu_on_host_backend).losses, strong.losses);
}

TEST_F(GpuRuns, AutomaticScalingThatAnotherPrecisionHasNoUseForIsOneNote) {
  config_.fp16_enable_auto_loss_scale = true;
  config_.num_batches = 1;
  const RunResult result = completed(run_on(gpu_on_host_backend));
  EXPECT_FALSE(result.facts.contains("loss_scale"));
  EXPECT_TRUE(notes(result,
                    "--fp16-enable-auto-loss-scale is ignored: in fp32 the device 'gpu' trains "
                    "without a loss scale"));
}

}  // namespace
}  // namespace penstock
