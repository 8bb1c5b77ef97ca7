// SPDX-License-Identifier: Apache-2.0
#include "bench/report/step_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <numeric>

#include "bench/config/training_loop.h"
#include "bench/record/statistics.h"
#include "bench/run/observe/progress.h"
#include "dataflow/datasets/detect_source.h"
#include "dataflow/entry.h"
#include "dataflow/options.h"
#include "dataflow/source.h"
#include "trainer/update_strategy.h"

namespace penstock::report {
namespace {

std::string line(std::string_view label, std::string_view value) {
  return fmt::format("{:<13}{}\n", label, value);
}

bool all_reduces(const UpdateEntry* update) { return update != nullptr && update->all_reduces; }

/// Does every rank need a separate process to add gradients? Horovod works like this.
bool is_horovod(const UpdateEntry* update) {
  return all_reduces(update) && update->ranks == RankKind::processes;
}

const UpdateEntry* update_of(const RunConfig& config) {
  return match_entry(update_table(), parse_component(config.variable_update).name);
}

/// As in tf_cnn_benchmarks: the devices of this process, or under Horovod those of all.
std::string device_list(const RunConfig& config) {
  const bool lists_all = is_horovod(update_of(config));
  const std::int64_t devices = lists_all ? all_devices(config) : config.num_gpus;
  std::string result = "[";
  for (std::int64_t index = 0; index < devices; ++index) {
    result += fmt::format("{}'{}{}:{}'", index == 0 ? "" : ", ", lists_all ? "horovod/" : "",
                          config.device.substr(0, config.device.find(':')), index);
  }
  return result + "]";
}

/// The value of an option in a component's text; empty if it is not given, "true" for a bare word.
std::string option_in(std::string_view component, std::string_view name) {
  for (const auto& [key, value] : parse_component(component).values) {
    if (canonical_name(key) == canonical_name(name)) return value.empty() ? "true" : value;
  }
  return "";
}

/// The lines about variables. tf_cnn_benchmarks prints some of them only for certain updates.
std::string variable_lines(const StepTableHeader& header) {
  const RunConfig& config = header.config;
  const UpdateEntry* const update = update_of(config);
  std::string text = line("Variables:", config.variable_update);
  if (all_reduces(update) && !is_horovod(update)) {
    text += line("AllReduce:", config.all_reduce_spec.empty() ? "None" : config.all_reduce_spec);
  }
  const std::string sync = option_in(config.variable_update, "sync"),
                    staged = option_in(config.variable_update, "staged");
  if (header.servers || !sync.empty()) {
    // Words such as "mean" say how workers wait; "false" says that they do not.
    text += line("Sync:", canonical_name(sync) == "false" ? "False" : "True");
  }
  if (!staged.empty() && parse_flag(staged, "staged")) text += line("Staged vars:", "True");
  if (is_horovod(update)) text += line("Horovod on:", header.horovod_on);
  return text;
}

bool shows_accuracy(const RunConfig& config) {
  return config.print_training_accuracy || config.forward_only;
}

std::string_view mode_of(const RunConfig& config) {
  if (config.eval) return "evaluation";
  if (config.forward_only) return "forward only";
  return evaluates_while_training(config) ? "training + evaluation" : "training";
}

/// The data set's name in tf_cnn_benchmarks, by the feeder's source or its files.
std::string dataset_of(const RunConfig& config, const FeederEntry& feeder) {
  const SourceEntry* entry = nullptr;
  if (feeder.reads_files && std::ranges::count(feeder.options, "source", &OptionSpec::name) > 0) {
    const Options options = options_of(config.fake_location, feeder.options);
    const ComponentText source = datasets::source_text(options.text("source"), config.data_dir);
    entry = match_entry(source_table(), source.name);
  }
  return std::string(entry == nullptr ? SourceEntry().dataset : entry->dataset);
}

/// Whether devices add gradients themselves, not the host.
bool adds_on_devices(const RunConfig& config, const BackendEntry& backend) {
  const bool has_choice = std::ranges::count(backend.options, "exchange", &OptionSpec::name) > 0;
  return backend.exchanges_gradients &&
         !(has_choice && options_of(config.device, backend.options).text("exchange") == "host");
}

}  // namespace

StepTableHeader header_of(const RunConfig& config, const Runner::Components& components,
                          double examples_per_epoch) {
  const FeederEntry& feeder = *components.feeder;
  return {.config = config,
          .synthetic = !feeder.reads_files && !feeder.needs_producer,
          .dataset = dataset_of(config, feeder),
          .servers = components.servers != nullptr,
          .horovod_on = adds_on_devices(config, *components.backend) ? "gpu" : "cpu",
          .examples_per_epoch = examples_per_epoch};
}

std::string format_header(const StepTableHeader& header) {
  const RunConfig& config = header.config;
  // Without training the first device evaluates alone.
  const std::int32_t batch =
      config.eval && config.eval_batch_size > 0 ? config.eval_batch_size : config.batch_size;
  const std::int64_t global = config.eval ? batch : batch * all_devices(config);
  const double epochs =
      static_cast<double>(config.num_batches * global) / header.examples_per_epoch;
  std::string text = line("Model:", config.model);
  text += line("Dataset:", header.dataset + (header.synthetic ? " (synthetic)" : ""));
  text += line("Mode:", mode_of(config));
  text += line("SingleSess:", "False");
  text += line("Batch size:", fmt::format("{} global", global));
  text += line("", fmt::format("{} per device", batch));
  text += line("Num batches:", fmt::format("{}", config.num_batches));
  text += line("Num epochs:", fmt::format("{:.2f}", epochs));
  text += line("Devices:", device_list(config));
  text += line("NUMA bind:", option_in(config.fake_location, "numa").empty() ? "False" : "True");
  text += line("Data format:", config.data_format);
  text += line("Optimizer:", config.optimizer.substr(0, config.optimizer.find(':')));
  if (!config.loop.empty()) text += line("Loop:", config.loop);
  text += variable_lines(header);
  return text + "==========\n";
}

std::string format_loader_header(const RunConfig& config) {
  std::string text = line("Loader:", option_in(config.fake_location, "loader"));
  text += line("Batch size:", fmt::format("{} per device", config.batch_size));
  text += line("Devices:", fmt::format("{} x {}", config.num_gpus, config.device));
  text += line("Loop:", config.loop);
  text += line("Num batches:", fmt::format("{}", config.num_batches));
  return text + "==========\n";
}

std::string format_title(const RunConfig& config) {
  std::string unit = sample_unit(config);
  unit.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(unit.front())));
  return fmt::format("Step\t{}/sec\t{}{}\n", unit, config.loss_type_to_report,
                     shows_accuracy(config) ? "\ttop_1_accuracy\ttop_5_accuracy" : "");
}

std::string format_row(const StepReport& step, double images,
                       const std::vector<double>& step_seconds, const RunConfig& config) {
  const StepSpeed speed = step_speed(images, step_seconds, config.display_perf_ewma);
  std::string row =
      fmt::format("{}\t{}/sec: {:.1f} +/- {:.1f} (jitter = {:.1f})\t{:.3f}", step.index + 1,
                  samples_name(config), speed.mean, speed.uncertainty, speed.jitter, step.loss);
  if (shows_accuracy(config)) row += fmt::format("\t{:.3f}\t{:.3f}", step.top1, step.top5);
  return row + "\n";
}

std::string format_end(const RunResult& result) {
  std::string text;
  if (evaluates_while_training(result.config)) {
    text = "Done with training\n";
  } else if (result.img_per_s > 0) {
    text = fmt::format("{0:-<64}\ntotal {1}/sec: {2:.2f}\n{0:-<64}\n", "",
                       samples_name(result.config), result.img_per_s);
  } else if (result.status == Status::ok) {
    text = "# no total: there was no time in which all devices trained; measure more steps\n";
  }
  if (result.status != Status::ok) {
    text += fmt::format("# {}: {}\n", to_string(result.status), result.reason);
  }
  return text;
}

StepTable::StepTable(const RunConfig& config, std::FILE* out, bool plain)
    : config_(config),
      images_(static_cast<double>(config.batch_size * all_devices(config))),
      out_(out),
      plain_(plain) {
  step_seconds_.reserve(static_cast<std::size_t>(config.num_batches));
}

void StepTable::warm_up_begins() {
  if (!plain_) {
    fmt::print(out_, "Generating {} model\nInitializing graph\n",
               config_.eval ? "evaluation" : "training");
  }
  fmt::print(out_, "{}", config_.eval ? "" : "Running warm up\n");
  std::fflush(out_);
}

void StepTable::window_begins() {
  step_seconds_.clear();
  fmt::print(out_, "Done warm up\n{}", format_title(config_));
  std::fflush(out_);
}

void StepTable::step(const StepReport& step) {
  step_seconds_.push_back(step.seconds);
  if (!trains_images(config_) && step.images > 0) {
    const auto steps = static_cast<double>(step_seconds_.size());
    images_ = ((steps - 1) * (steps > 1 ? images_ : 0) + step.images) / steps;
  }
  const auto every = static_cast<std::size_t>(config_.display_every);
  if (step.index == 0 || (step.index + 1) % every == 0) {
    fmt::print(out_, "{}", format_row(step, images_, step_seconds_, config_));
    std::fflush(out_);
  }
  constexpr std::size_t kTimed = 10;
  if (extended_steps_ > 0 && step.index + 1 == kTimed) announce_extension();
}

void StepTable::announce_extension() {
  const double step_s = std::accumulate(step_seconds_.begin(), step_seconds_.end(), 0.0) /
                        static_cast<double>(step_seconds_.size());
  const double steps_left =
      static_cast<double>(extended_steps_) - static_cast<double>(step_seconds_.size());
  fmt::print(stderr,
             "penstock: {} steps are measured instead of {}, so that batches made before them do "
             "not decide the rate: {} left; --noextend-window measures {}\n",
             extended_steps_, config_.num_batches, duration_text(step_s * steps_left),
             config_.num_batches);
  extended_steps_ = 0;
}

void StepTable::evaluation_begins(std::int64_t training_step) {
  evaluated_images_ = evaluation_seconds_ = 0;
  fmt::print(out_, "Running evaluation at global_step {}\n", training_step);
}

void StepTable::evaluation_step(std::size_t index, double images, double seconds) {
  evaluated_images_ += images;
  evaluation_seconds_ += seconds;
  if ((index + 1) % static_cast<std::size_t>(config_.display_every) != 0) return;
  fmt::print(out_, "{}\t{:.1f} examples/sec\n", index + 1, evaluated_images_ / evaluation_seconds_);
  std::fflush(out_);
  evaluated_images_ = evaluation_seconds_ = 0;
}

void StepTable::evaluated(const EvaluationReport& report) {
  fmt::print(out_, "Accuracy @ 1 = {:.4f} Accuracy @ 5 = {:.4f} [{} examples]\n", report.top1,
             report.top5, report.images);
  std::fflush(out_);
}

}  // namespace penstock::report
