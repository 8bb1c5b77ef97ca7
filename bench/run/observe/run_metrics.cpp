// SPDX-License-Identifier: Apache-2.0
#include "bench/run/observe/run_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "dataflow/options.h"

namespace penstock {
namespace {

std::string head(std::string_view name, std::string_view type, std::string_view help) {
  return fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
}

template <typename Value>
std::string of_queues(const std::vector<QueueGauge>& queues, std::string_view labels,
                      std::string_view name, std::string_view type, std::string_view help,
                      Value QueueGauge::*value) {
  std::string text = head(name, type, help);
  for (const QueueGauge& queue : queues) {
    text += fmt::format("{}{{{},queue=\"{}\"}} {}\n", name, labels, queue.name, queue.*value);
  }
  return text;
}

/// Total time that the last device's thread has waited for batches.
double input_wait_of(const std::vector<QueueGauge>& queues) {
  return queues.empty() ? 0 : queues.back().consumer_wait_s;
}

}  // namespace

RunMetrics::RunMetrics(const RunConfig& config, Gauges gauges)
    : images_(std::int64_t{config.batch_size} * all_devices(config)),
      labels_(fmt::format("feeder=\"{}\",model=\"{}\"", parse_component(config.fake_location).name,
                          parse_component(config.model).name)),
      gauges_(std::move(gauges)) {}

void RunMetrics::window_begins() {
  const double wait_s = input_wait_of(gauges_());
  const std::lock_guard lock(mutex_);
  totals_.wait_before_s = wait_s;
  totals_.window_s = 0;
}

void RunMetrics::step(const StepReport& step) {
  const auto bound = std::ranges::lower_bound(kBounds, step.seconds);
  const std::lock_guard lock(mutex_);
  ++totals_.counts[static_cast<std::size_t>(bound - kBounds.begin())];
  ++totals_.steps;
  totals_.seconds += step.seconds;
  totals_.window_s += step.seconds;
}

std::string RunMetrics::page() const {
  const auto [counts, steps, seconds, window_s, wait_before_s] = [this] {
    const std::lock_guard lock(mutex_);
    return totals_;
  }();
  const std::vector<QueueGauge> queues = gauges_();
  std::string text = head("penstock_images_total", "counter", "Images of measured steps.");
  text += fmt::format("penstock_images_total{{{}}} {}\n", labels_, steps * images_);
  text += head("penstock_step_seconds", "histogram", "Lengths of measured steps.");
  std::int64_t below = 0;
  for (std::size_t i = 0; i < kBounds.size(); ++i) {
    below += counts[i];
    text += fmt::format("penstock_step_seconds_bucket{{{},le=\"{}\"}} {}\n", labels_, kBounds[i],
                        below);
  }
  text += fmt::format(
      "penstock_step_seconds_bucket{{{0},le=\"+Inf\"}} {1}\n"
      "penstock_step_seconds_sum{{{0}}} {2}\npenstock_step_seconds_count{{{0}}} {1}\n",
      labels_, steps, seconds);
  const double wait_s = input_wait_of(queues) - wait_before_s;
  text += head("penstock_input_wait_share", "gauge",
               "Share of the window in which the trainer waited for a batch.");
  text += fmt::format("penstock_input_wait_share{{{}}} {}\n", labels_,
                      window_s > 0 ? std::clamp(wait_s / window_s, 0.0, 1.0) : 0.0);
  text += of_queues(queues, labels_, "penstock_queue_depth", "gauge", "Batches ready in a ring.",
                    &QueueGauge::filled);
  text += of_queues(queues, labels_, "penstock_queue_slots", "gauge",
                    "Batches that fit into a ring.", &QueueGauge::slots);
  text +=
      of_queues(queues, labels_, "penstock_stall_seconds_total", "counter",
                "Time that readers of a ring waited for a batch.", &QueueGauge::consumer_wait_s);
  text += of_queues(queues, labels_, "penstock_backpressure_seconds_total", "counter",
                    "Time that writers of a ring waited for room.", &QueueGauge::producer_wait_s);
  return text;
}

}  // namespace penstock
