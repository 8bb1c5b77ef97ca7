// SPDX-License-Identifier: Apache-2.0
#include "bench/run/evaluator.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <thread>
#include <utility>

#include "bench/record/machine.h"
#include "dataflow/datasets/shard_list.h"
#include "dataflow/error.h"
#include "trainer/backend.h"

namespace penstock {
namespace {

/// The number of steps if neither flags nor data determine it.
constexpr std::int64_t kDefaultSteps = 100;

/// Copies the parameters and running statistics of `from` to `to`, which has the same graph and
/// maybe other batches. Both devices are idle.
void copy_weights(Executable& from, Executable& to) {
  const ParameterSet &source = from.parameters(), &target = to.parameters();
  PENSTOCK_ASSERT(source.parameters.size() == target.parameters.size());
  PENSTOCK_ASSERT(source.running.count == target.running.count);
  std::vector<float> plain;
  for (std::size_t index = 0; index < source.parameters.size(); ++index) {
    plain.resize(static_cast<std::size_t>(source.parameters[index].spec.count()));
    from.read(source.parameters[index].spec, source.parameters[index].weight, plain);
    to.write(target.parameters[index].spec, target.parameters[index].weight, plain);
  }
  for (std::size_t index = 0; index < source.buffers.size(); ++index) {
    plain.resize(source.buffers[index].weight.count);
    from.read(source.buffers[index].spec, source.buffers[index].weight, plain);
    to.write(target.buffers[index].spec, target.buffers[index].weight, plain);
  }
}

/// How often the data is read, and in how many steps.
struct Passes {
  std::int64_t epochs = 1;
  std::size_t steps = 0;
};
Passes passes_of(const RunConfig& config, const DataExtent& extent, std::int32_t batch) {
  if (config.num_eval_batches > 0) {
    return {.epochs = -1, .steps = static_cast<std::size_t>(config.num_eval_batches)};
  }
  if (extent.examples == 0) {
    if (config.num_eval_epochs > 0) {
      throw ConfigError(
          "--num-eval-epochs is {}, but batches of '{}' have no end; state --num-eval-batches",
          config.num_eval_epochs, config.fake_location);
    }
    return {.epochs = -1, .steps = static_cast<std::size_t>(kDefaultSteps)};
  }
  const double epochs = config.num_eval_epochs > 0 ? config.num_eval_epochs : 1;
  const double images = epochs * static_cast<double>(extent.examples);
  return {.epochs = static_cast<std::int64_t>(std::ceil(epochs)),
          .steps = static_cast<std::size_t>(std::ceil(images / batch))};
}

}  // namespace

std::string evaluation_folder(const RunConfig& config) {
  namespace fs = std::filesystem;
  if (!config.eval_data_dir.empty()) return config.eval_data_dir;
  if (!datasets::validation_set(config.data_dir).empty()) return config.data_dir;
  const fs::path data(config.data_dir);
  const fs::path folder = data.has_filename() ? data : data.parent_path();
  if (folder.filename() == "train") {
    for (const char* name : {"val", "validation"}) {
      const fs::path sibling = folder.parent_path() / name;
      if (fs::is_directory(sibling)) return sibling.string();
    }
  }
  if (config.eval) return config.data_dir;
  throw ConfigError(
      "there is no evaluation set beside --data-dir '{}': expected a folder 'val' next "
      "to one named 'train', or files validation-* beside train-* in it; state --eval-data-dir",
      config.data_dir);
}

Evaluator::Evaluator(RunParts& parts) : parts_(parts), spec_(parts.setup.spec) {
  const RunConfig& config = parts_.setup.config;
  if (parts_.setup.components.feeder->needs_producer) {
    throw ConfigError(
        "evaluation needs separate batches, which the feeder '{}' does not supply; use "
        "--fake-location queue",
        parts_.setup.components.feeder->name);
  }
  if (config.num_eval_batches > 0 && config.num_eval_epochs > 0) {
    throw ConfigError("--num-eval-batches and --num-eval-epochs exclude each other; keep one");
  }
  if (config.eval_batch_size > 0 && config.eval_batch_size != spec_.images) {
    spec_.images = config.eval_batch_size;
    own_executable_ = parts_.setup.compile(spec_, 0, *parts_.ranks.front().device);
  }
  next_feeder_ = make_feeder();
}

std::unique_ptr<Feeder> Evaluator::make_feeder() {
  RunSetup& setup = parts_.setup;
  DataPlan data;
  data.epochs = setup.config.num_eval_batches > 0 ? -1 : 1;
  data.order = Order::strict;
  data.shuffle = data.augment = false;
  data.seed = setup.config.seed;
  data.classes = spec_.classes;
  if (setup.components.feeder->reads_files) data.directory = evaluation_folder(setup.config);
  const auto make = [&] {
    if (setup.feeds_device_slots()) {
      return setup.make_feeder(spec_, data, *parts_.ranks.front().device, setup.config.device_slots,
                               probe_);
    }
    return setup.make_feeder(spec_, data, *parts_.feed.hosts.front().slot_memory,
                             setup.config.prefetch, probe_);
  };
  std::unique_ptr<Feeder> feeder = make();
  const Passes passes = passes_of(setup.config, feeder->extent(), spec_.images);
  steps_ = passes.steps;
  examples_ = feeder->extent().examples > 0 ? static_cast<double>(feeder->extent().examples)
                                            : static_cast<double>(steps_) * spec_.images;
  if (passes.epochs == data.epochs) return feeder;
  data.epochs = passes.epochs;
  return make();
}

/// Each pass has a new feeder, and most of them report the same.
std::vector<std::string> Evaluator::notes() const {
  std::vector<std::string> notes;
  for (const std::string& note : probe_.notes()) {
    std::string text = "evaluation: " + note;
    if (std::ranges::find(notes, text) == notes.end()) notes.push_back(std::move(text));
  }
  return notes;
}

/// One pass over the data: rings, feeder and stager, and threads for the latter two.
class Evaluator::Pass {
 public:
  Pass(RunParts& parts, const BatchSpec& spec, Executable& executable, Feeder& feeder)
      : parts_(parts),
        device_(parts.ranks.front().device.get()),
        ring_(make_ring(spec, parts.setup.config.device_slots, MemoryKind::device)),
        host_ring_(parts.setup.feeds_device_slots()
                       ? nullptr
                       : make_ring(spec, parts.setup.config.prefetch, MemoryKind::pinned)),
        feeder_(feeder),
        replica_(*ring_, *device_,
                 {executable, *parts.ranks.front().optimizer, *parts.ranks.front().update, {}},
                 Phase::evaluate, parts.setup.clock) {
    if (host_ring_ == nullptr) return;
    host_ring_->accept_foreign();
    stager_ = std::make_unique<Stager>(*host_ring_, 0, *ring_, *device_);
  }

  Replica::Ending run(std::size_t steps, StepLog& log, const std::stop_token& stop) {
    std::stop_source over;
    const std::stop_callback forward(stop, [&] { over.request_stop(); });
    std::vector<std::jthread> threads;
    const auto start = [&](auto body) {
      threads.emplace_back([this, body, participant = Clock::Participant(parts_.setup.clock)] {
        if (parts_.setup.components.backend->computes_on_host) yield_to_other_threads();
        body();
      });
    };
    BatchRing& fed = host_ring_ ? *host_ring_ : *ring_;
    const std::stop_token ending = over.get_token();
    const auto on_step = [&](std::size_t i, const StepTimes& times) { log.add(i, times); };
    try {
      start([&] { run_to_end(feeder_, fed, ending); });
      if (stager_) start([&] { stager_->run(ending); });
      Leg leg;
      const Replica::Ending reached = replica_.run(steps, leg, on_step, stop);
      over.request_stop();
      return reached;
    } catch (...) {
      over.request_stop();
      throw;
    }
  }

 private:
  std::unique_ptr<BatchRing> make_ring(const BatchSpec& spec, std::int32_t slots, MemoryKind kind) {
    Device& memory = kind == MemoryKind::device ? *device_ : *parts_.feed.hosts.front().slot_memory;
    return std::make_unique<BatchRing>(spec, static_cast<std::size_t>(slots), memory, kind,
                                       std::span(&device_, 1), Order::strict, parts_.setup.clock);
  }

  RunParts& parts_;
  Device* const device_;
  const std::unique_ptr<BatchRing> ring_, host_ring_;
  Feeder& feeder_;
  std::unique_ptr<Stager> stager_;
  Replica replica_;
};

EvaluationReport Evaluator::run(std::int64_t step, StepReporter& reporter, std::stop_token stop) {
  Executable& trained = *parts_.ranks.front().executable;
  static_cast<void>(parts_.ranks.front().update->kept(trained.parameters()));  // maybe from servers
  Executable& executable = own_executable_ ? *own_executable_ : trained;
  if (own_executable_) copy_weights(trained, executable);
  const std::unique_ptr<Feeder> feeder =
      next_feeder_ ? std::exchange(next_feeder_, nullptr) : make_feeder();
  StepLog& log = reporter.begin_evaluation(step, steps_);
  EvaluationReport report{.step = step};
  try {
    Pass pass(parts_, spec_, executable, *feeder);
    report.complete = pass.run(steps_, log, stop) != Replica::Ending::stopped;
  } catch (...) {
    reporter.end_evaluation(report);
    throw;
  }
  for (const StepLog::Step& done : log.ready()) {
    report.images += done.images;
    report.top1 += static_cast<double>(done.top1);
    report.top5 += static_cast<double>(done.top5);
    report.seconds = to_seconds(done.completion);
  }
  const double images = std::max(1.0, static_cast<double>(report.images));
  report.top1 /= images;
  report.top5 /= images;
  reporter.end_evaluation(report);
  return report;
}

}  // namespace penstock
