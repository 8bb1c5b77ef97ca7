// SPDX-License-Identifier: Apache-2.0
// The outputs of other benchmarks, which know one run at a time, from saved steps.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string_view>
#include <vector>

#include "bench/record/report_text.h"
#include "bench/report/report.h"
#include "bench/report/step_table.h"
#include "dataflow/entry.h"
#include "feeders/feeder.h"
#include "trainer/backend.h"
#include "trainer/update_strategy.h"

namespace penstock::report {
namespace {

using Json = nlohmann::ordered_json;

/// Calls `print(result, out)` for every repetition with steps. If there are several, or if
/// `always`, a line that begins with '#' names each. For a row without such a repetition, a '#'
/// line gives the reason.
template <auto print, bool always = true>
void print_runs(const SweepResult& sweep, const document::TerminalStyle&, std::ostream& out) {
  const bool several = sweep.rows.size() > 1 || sweep.repetitions > 1;
  for (const Row& row : sweep.rows) {
    bool has_steps = false;
    for (const Repetition& repetition : row.repetitions) {
      const RunResult& result = repetition.result;
      if (result.step_ms.empty()) continue;
      has_steps = true;
      if (several || always) {
        out << fmt::format("# {} on {} x {}, run {} of {}: {}\n", label_of(sweep, row),
                           all_devices(result.config), result.config.device, repetition.round + 1,
                           sweep.repetitions, to_string(result.status));
      }
      print(result, out);
    }
    if (!has_steps) {
      out << fmt::format("# {}: {}: {}\n", label_of(sweep, row), to_string(row.status), row.reason);
    }
  }
}

/// img/s of all devices for each group of `steps` consecutive steps of the window. An incomplete
/// last group is left out. If there are fewer than `steps` steps, they form one group.
std::vector<double> group_rates(const RunResult& result, std::size_t steps) {
  std::vector<double> rates;
  const std::vector<double>& step_ms = result.step_ms;
  const std::size_t group = std::min(steps, step_ms.size());
  for (std::size_t first = 0; group > 0 && first + group <= step_ms.size(); first += group) {
    const auto begin = step_ms.begin() + static_cast<std::ptrdiff_t>(first);
    const double ms = std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(group), 0.0);
    const auto images = static_cast<double>(group) * static_cast<double>(result.images_per_step);
    if (ms > 0) rates.push_back(1e3 * images / ms);
  }
  return rates;
}

/// "name" of "name:options".
std::string_view plain_name(std::string_view component) {
  return component.substr(0, component.find(':'));
}

/// Null: the feeder is unknown to this program.
const FeederEntry* feeder_of(const RunConfig& config) {
  return match_entry(feeder_table(), plain_name(config.fake_location));
}

StepTableHeader header_of(const RunResult& result) {
  const FeederEntry* const feeder = feeder_of(result.config);
  StepTableHeader header{
      .config = result.config,
      .synthetic = feeder == nullptr || (!feeder->reads_files && !feeder->needs_producer)};
  if (result.examples_per_epoch > 0) header.examples_per_epoch = result.examples_per_epoch;
  return header;
}

/// The console output of tf_cnn_benchmarks, as `penstock run` prints it during a run. Accuracies of
/// single steps are not saved, so their columns are left out.
void print_tf_cnn_benchmarks(const RunResult& result, std::ostream& out) {
  RunConfig config = result.config;
  config.print_training_accuracy = config.forward_only = false;
  out << format_header(header_of(result)) << "Generating training model\nInitializing graph\n"
      << "Running warm up\nDone warm up\n"
      << format_title(config);
  std::vector<double> seconds;
  for (std::size_t i = 0; i < result.step_ms.size(); ++i) {
    seconds.push_back(result.step_ms[i] / 1e3);
    if (i != 0 && (i + 1) % static_cast<std::size_t>(config.display_every) != 0) continue;
    StepReport step;
    step.index = i;
    if (i < result.losses.size()) step.loss = result.losses[i];
    out << format_row(step, static_cast<double>(result.images_per_step), seconds, config);
  }
  out << format_end(result);
}

constexpr std::size_t kStepsPerEpoch = 50;

/// The moving average, with decay 0.5, of the host ring's fill level up to a share of the window.
std::optional<double> queue_size(const RunResult& result, double share) {
  if (result.queues.empty() || result.queues.front().filled.empty()) return std::nullopt;
  const std::vector<double>& filled = result.queues.front().filled;
  const auto parts = static_cast<std::size_t>(share * static_cast<double>(filled.size()));
  double average = filled.front();
  for (std::size_t i = 1; i < std::min(parts, filled.size()); ++i)
    average = 0.5 * average + 0.5 * filled[i];
  return average;
}

/// The log of a tensorpack trainer, without its clock and source lines: epochs of fifty steps, the
/// throughput of each in samples per second, and a moving average of the queue size. Tensorpack's
/// first epoch is warm-up by convention; here, warm-up steps are separate and not shown.
void print_tensorpack(const RunResult& result, std::ostream& out) {
  const std::vector<double> rates = group_rates(result, kStepsPerEpoch);
  const std::size_t steps = std::min(kStepsPerEpoch, result.step_ms.size());
  for (std::size_t epoch = 1; epoch <= rates.size(); ++epoch) {
    const double rate = rates[epoch - 1];
    const double seconds =
        static_cast<double>(steps) * static_cast<double>(result.images_per_step) / rate;
    out << fmt::format("Start Epoch {} ...\n", epoch)
        << fmt::format("Epoch {} (global_step {}) finished, time:{:.3g} seconds.\n", epoch,
                       epoch * steps, seconds);
    const double share = static_cast<double>(epoch) / static_cast<double>(rates.size());
    if (const std::optional<double> size = queue_size(result, share)) {
      out << fmt::format("QueueInput/queue_size: {:.5g}\n", *size);
    }
    out << fmt::format("Throughput (samples/sec): {:.5g}\n", rate);
  }
  out << "Training has finished!\n";
}

/// The summary of Horovod and KungFu over iterations of ten steps: mean rate of a device, and 1.96
/// times the population standard deviation over iterations (a spread, not an interval of the mean).
struct IterationSummary {
  std::vector<double> rates;  ///< per device, one per iteration
  double mean = 0, reach = 0;
};

IterationSummary summarise_iterations(const RunResult& result) {
  constexpr std::size_t kStepsPerIteration = 10;
  IterationSummary summary{.rates = group_rates(result, kStepsPerIteration)};
  const auto count = static_cast<double>(std::max<std::size_t>(1, summary.rates.size()));
  // A step has the images of all processes, or of one if the results of the others are missing.
  const std::int64_t batch = std::max(1, result.config.batch_size);
  const std::int64_t devices = std::max<std::int64_t>(1, result.images_per_step / batch);
  for (double& rate : summary.rates) {
    rate /= static_cast<double>(devices);
    summary.mean += rate / count;
  }
  double variance = 0;
  for (const double rate : summary.rates)
    variance += (rate - summary.mean) * (rate - summary.mean) / count;
  summary.reach = 1.96 * std::sqrt(variance);
  return summary;
}

/// The device's name in those benchmarks: CPU if it is made of host cores, else GPU.
std::string_view device_word(const RunConfig& config) {
  const BackendEntry* const backend = match_entry(backend_table(), plain_name(config.device));
  // The CPU backend alone may be absent from a program.
  return backend == nullptr || backend->computes_on_host ? "CPU" : "GPU";
}

/// The lines that Horovod and KungFu share; `start` stands before the iterations.
IterationSummary print_iterations(const RunResult& result, std::string_view start,
                                  std::ostream& out) {
  const RunConfig& config = result.config;
  const std::string_view device = device_word(config);
  out << fmt::format("Model: {}\nBatch size: {}\nNumber of {}s: {}\n{}", config.model,
                     config.batch_size, device, all_devices(config), start);
  IterationSummary summary = summarise_iterations(result);
  for (std::size_t i = 0; i < summary.rates.size(); ++i) {
    out << fmt::format("Iter #{}: {:.1f} img/sec per {}\n", i, summary.rates[i], device);
  }
  out << fmt::format("Img/sec per {}: {:.1f} +-{:.1f}\n", device, summary.mean, summary.reach);
  return summary;
}

/// The output of Horovod's synthetic benchmarks. The totals are, as Horovod's, the rate of one
/// device times the number of devices of all processes.
void print_horovod(const RunResult& result, std::ostream& out) {
  const IterationSummary summary =
      print_iterations(result, "Running warmup...\nRunning benchmark...\n", out);
  const std::int64_t devices = all_devices(result.config);
  out << fmt::format("Total img/sec on {} {}(s): {:.1f} +-{:.1f}\n", devices,
                     device_word(result.config), static_cast<double>(devices) * summary.mean,
                     static_cast<double>(devices) * summary.reach);
}

/// The output of KungFu's system benchmark: Horovod's iterations without a total, then a
/// machine-readable line. The durations of warm-up and start are not saved, so they are left out.
void print_kungfu(const RunResult& result, std::ostream& out) {
  const RunConfig& config = result.config;
  const IterationSummary summary = print_iterations(result, "", out);
  const FeederEntry* const feeder = feeder_of(config);
  const bool reads_files = feeder != nullptr && feeder->reads_files;
  const Json attributes{{"framework", "penstock"},
                        {"np", all_devices(config)},
                        {"strategy", plain_name(config.variable_update)},
                        {"bs", config.batch_size},
                        {"model", config.model},
                        {"xla", false},
                        {"kf-opt", plain_name(config.variable_update)},
                        {"fuse", false},
                        {"nvlink", nullptr},
                        {"data", reads_files ? "disk" : "memory"}};
  out << fmt::format("RESULT: {:.6f} +-{:.6f} {}\n", summary.mean, summary.reach,
                     attributes.dump());
}

}  // namespace

extern constinit const ReportEntry tf_cnn_benchmarks_report{
    .name = "tf_cnn_benchmarks",
    .summary = "each run as tf_cnn_benchmarks prints it",
    .write = print_runs<print_tf_cnn_benchmarks, false>,
};

extern constinit const ReportEntry tensorpack_report{
    .name = "tensorpack",
    .summary = "each run as a tensorpack trainer logs it",
    .write = print_runs<print_tensorpack>,
};

extern constinit const ReportEntry horovod_report{
    .name = "horovod",
    .summary = "each run as Horovod's synthetic benchmarks print it",
    .write = print_runs<print_horovod>,
};

extern constinit const ReportEntry kungfu_report{
    .name = "kungfu",
    .summary = "each run as KungFu's system benchmark prints it",
    .write = print_runs<print_kungfu>,
};

}  // namespace penstock::report
