// SPDX-License-Identifier: Apache-2.0
#include "bench/step_table.h"

#include <fmt/format.h>

#include "bench/statistics.h"

namespace penstock {
namespace {

/// Training images of ILSVRC-2012, by which tf_cnn_benchmarks counts epochs.
constexpr double kImageNetImages = 1281167;

std::string line(std::string_view label, std::string_view value) {
  return fmt::format("{:<13}{}\n", label, value);
}

std::string device_list(const RunConfig& config) {
  std::string result = "[";
  for (std::int32_t index = 0; index < config.num_gpus; ++index) {
    result += fmt::format("{}'{}:{}'", index == 0 ? "" : ", ",
                          config.device.substr(0, config.device.find(':')), index);
  }
  return result + "]";
}

}  // namespace

std::string format_header(const StepTableHeader& header) {
  const RunConfig& config = header.config;
  const std::int64_t global = std::int64_t{config.batch_size} * config.num_gpus;
  const double epochs = static_cast<double>(config.num_batches * global) / kImageNetImages;
  std::string text = line("Model:", config.model);
  text += line("Dataset:", header.synthetic ? "imagenet (synthetic)" : "imagenet");
  text += line("Mode:", "training");
  text += line("SingleSess:", "False");
  text += line("Batch size:", fmt::format("{} global", global));
  text += line("", fmt::format("{} per device", config.batch_size));
  text += line("Num batches:", fmt::format("{}", config.num_batches));
  text += line("Num epochs:", fmt::format("{:.2f}", epochs));
  text += line("Devices:", device_list(config));
  text += line("NUMA bind:", "False");
  text += line("Data format:", "NHWC");
  text += line("Optimizer:", "sgd");
  text += line("Variables:", config.variable_update);
  if (header.exchanges) text += line("AllReduce:", "None");
  return text + "==========\n";
}

std::string format_row(std::size_t step, double images, const std::vector<double>& step_seconds,
                       double ewma, double loss) {
  const StepSpeed speed = step_speed(images, step_seconds, ewma);
  return fmt::format("{}\timages/sec: {:.1f} +/- {:.1f} (jitter = {:.1f})\t{:.3f}\n", step,
                     speed.mean, speed.uncertainty, speed.jitter, loss);
}

std::string format_total(double img_per_s) {
  const std::string rule(64, '-');
  return fmt::format("{0}\ntotal images/sec: {1:.2f}\n{0}\n", rule, img_per_s);
}

StepTable::StepTable(const RunConfig& config, std::FILE* out)
    : images_(static_cast<double>(config.batch_size) * config.num_gpus),
      display_every_(static_cast<std::size_t>(config.display_every)),
      ewma_(config.display_perf_ewma),
      out_(out) {
  step_seconds_.reserve(static_cast<std::size_t>(config.num_batches));
}

void StepTable::warm_up_begins() {
  fmt::print(out_, "Generating training model\nInitializing graph\nRunning warm up\n");
  std::fflush(out_);
}

void StepTable::window_begins() {
  step_seconds_.clear();
  fmt::print(out_, "Done warm up\nStep\tImg/sec\ttotal_loss\n");
  std::fflush(out_);
}

void StepTable::step(std::size_t index, double seconds, double loss) {
  step_seconds_.push_back(seconds);
  if (index != 0 && (index + 1) % display_every_ != 0) return;
  fmt::print(out_, "{}", format_row(index + 1, images_, step_seconds_, ewma_, loss));
  std::fflush(out_);
}

}  // namespace penstock
