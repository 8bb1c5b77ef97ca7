// SPDX-License-Identifier: Apache-2.0
#include "bench/scaling/projection/measured_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <set>

#include "bench/record/saved_results.h"
#include "bench/statistics/series.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "trainer/backend.h"
#include "trainer/buckets.h"
#include "trainer/model.h"

namespace penstock::scaling {

namespace {

/// A device that is starved for a larger share of its time was limited by its feeder.
constexpr double kStarved = 0.02;

/// Excludes the first step, whose idle time older records lack.
double mean_of_steps(const std::vector<double>& values) {
  return statistics::mean(std::span(values).subspan(values.size() > 1 ? 1 : 0));
}

double deviation_of(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const double mean = statistics::mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

/// Multiply-accumulates of each node's backward: see forward_share.
std::vector<double> backward_macs(const Graph& graph) {
  std::vector<double> macs;
  bool first = true;
  for (const Node& node : graph.nodes()) {
    macs.push_back((first ? 1 : 2) * node.forward_macs);
    if (node.forward_macs > 0) first = false;
  }
  return macs;
}

/// The share of backward that remains after node i.
std::vector<double> left_of_backward(const Graph& graph) {
  std::vector<double> left = backward_macs(graph);
  std::exclusive_scan(left.begin(), left.end(), left.begin(), 0.0);
  const std::vector<double> macs = backward_macs(graph);
  const double all = std::accumulate(macs.begin(), macs.end(), 0.0);
  for (double& each : left) each = all > 0 ? each / all : 0;
  return left;
}

std::int64_t machines_of(const RunResult& run) {
  std::set<std::string> machines;
  for (const RankResult& rank : run.ranks) machines.insert(rank.host);
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(machines.size()));
}

void add_feeder(const RunResult& run, MeasuredStep& step) {
  const double starved = mean_of_steps(run.starved_ms) / std::max(mean_of_steps(run.step_ms), 1e-9);
  if (starved <= kStarved || run.sustained_img_per_s <= 0) return;
  step.feeder_img_per_s = run.sustained_img_per_s / static_cast<double>(machines_of(run));
  step.notes.push_back(
      fmt::format("devices of the record waited for their feeder {:.0f} % of the time: it supplies "
                  "{:.1f} img/s a host",
                  100 * starved, *step.feeder_img_per_s));
}

/// A device's compute time: its step without waiting for input and exchange.
double own_ms(const RunResult& run, MeasuredStep& step) {
  const double whole = mean_of_steps(run.step_ms), idle = mean_of_steps(run.device_idle_ms);
  const double exposed = fact_of(run, "exchange_exposed_ms_per_step").value_or(0);
  if (exposed > 0 || idle > 0.01 * whole) {
    step.notes.push_back(
        fmt::format("taken off the record's steps of {:.2f} ms: {:.2f} ms in which its devices had "
                    "no step, {:.2f} ms of exchange that showed",
                    whole, idle, exposed));
  }
  return whole - idle - exposed;
}

Graph graph_of(const RunConfig& config) {
  const ModelEntry& model = find_entry(model_table(), config.model);
  const ImageShape image{config.image_size, config.image_size, model.image.channels};
  return build_graph(model, image, config.classes);
}

void add_measured_buckets(const RunResult& run, MeasuredStep& step) {
  double bytes = 0, ms = 0;
  for (const BucketUse& bucket : run.buckets) {
    step.buckets.push_back({bucket.mib * 0x1p20, bucket.lead_ms});
    bytes += step.buckets.back().bytes;
    ms += bucket.exchange_ms;
  }
  step.notes.push_back(
      fmt::format("buckets, and when they are ready: measured, {} of them", step.buckets.size()));
  if (step.ranks < 2 || !(ms > 0)) return;
  const double passes = 2 * static_cast<double>(step.ranks - 1) / static_cast<double>(step.ranks);
  step.notes.push_back(fmt::format(
      "the record's own exchange over {} devices reached a bus bandwidth of {:.3g} GB/s, waits for "
      "slower ranks included; --topology takes it as local, or as link with efficiency=1",
      step.ranks, passes * bytes / ms / 1e6));
}

void add_buckets(const RunResult& run, const Graph& graph, MeasuredStep& step) {
  if (!run.buckets.empty()) return add_measured_buckets(run, step);
  step.buckets =
      derived_buckets(graph, run.config.first_bucket_mib, run.config.bucket_mib, step.backward_ms);
  step.notes.push_back(fmt::format(
      "buckets, and when they are ready: derived from the graph's multiply-accumulates, {} of "
      "them; the record has none (it exchanged nothing in buckets)",
      step.buckets.size()));
}

}  // namespace

double forward_share(const Graph& graph) {
  const std::vector<double> macs = backward_macs(graph);
  const double backward = std::accumulate(macs.begin(), macs.end(), 0.0);
  const double forward = graph.forward_macs_per_image();
  return forward > 0 ? forward / (forward + backward) : 1.0 / 3;
}

std::vector<ReadyBucket> derived_buckets(const Graph& graph, double first_bucket_mib,
                                         double bucket_mib, double backward_ms) {
  std::vector<ParameterSpec> specs = graph.parameters();
  std::ranges::reverse(specs);
  std::size_t elements = 0;
  for (const ParameterSpec& spec : specs) elements += static_cast<std::size_t>(spec.count());
  // Planning only computes with addresses; the memory is never accessed.
  const auto arena = std::make_unique_for_overwrite<float[]>(elements);
  ParameterSet set;
  set.gradients = {arena.get(), elements, DType::f32};
  std::size_t at = 0;
  for (const ParameterSpec& spec : specs) {
    const auto count = static_cast<std::size_t>(spec.count());
    set.parameters.push_back({spec, {}, {arena.get() + at, count, DType::f32}});
    at += count;
  }
  const BucketPlan plan(set, {.first_bytes = static_cast<std::size_t>(first_bucket_mib * 0x1p20),
                              .bytes = static_cast<std::size_t>(bucket_mib * 0x1p20)});
  const std::vector<double> left = left_of_backward(graph);
  std::vector<ReadyBucket> buckets(plan.buckets().size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    ReadyBucket& bucket = buckets[plan.bucket_of(i)];
    bucket.bytes += static_cast<double>(specs[i].count()) * sizeof(float);
    // The last gradient of a bucket decides; gradients come in this order.
    bucket.lead_ms = backward_ms * left[static_cast<std::size_t>(specs[i].node)];
  }
  return buckets;
}

MeasuredStep measured_step(const RunResult& run) {
  if (run.status != Status::ok && run.status != Status::draining) {
    throw ConfigError("the record's run is {}: {}; project from a run that completed",
                      to_string(run.status), run.reason);
  }
  if (run.step_ms.empty() || run.config.batch_size < 1) {
    throw ConfigError("the record has no steps; project from what `penstock run --json` printed");
  }
  const Graph graph = graph_of(run.config);
  if (graph.parameter_count() == 0) {
    throw ConfigError(
        "the record's model is {}, which has no gradients; project from a model with weights",
        run.config.model);
  }
  MeasuredStep step;
  step.model = run.config.model;
  step.what = fmt::format("feeder {}, update {}, device {}", run.config.fake_location,
                          run.config.variable_update, run.config.device);
  step.batch = run.config.batch_size;
  step.ranks = all_devices(run.config);
  step.img_per_s = run.img_per_s;
  const double own = own_ms(run, step);
  if (!(own > 0)) {
    throw ConfigError(
        "the record's devices computed nothing; project from one with a model that takes time");
  }
  const double share = forward_share(graph);
  step.forward_ms = share * own;
  step.backward_ms = own - step.forward_ms;
  step.notes.push_back(
      fmt::format("a device computes {:.2f} ms a step: {:.2f} ms forward and {:.2f} ms backward, "
                  "split by the graph's multiply-accumulates; the update counts as backward",
                  own, step.forward_ms, step.backward_ms));
  step.jitter_ms = deviation_of(run.step_ms);
  add_buckets(run, graph, step);
  add_feeder(run, step);
  const BackendEntry* const backend = entry_of(backend_table(), run.config.device);
  if (backend != nullptr && backend->emulates) {
    step.notes.emplace_back(
        "the record's device is emulated: its rate is a statement, not a measurement, and rates "
        "that others published include their exchange");
  }
  return step;
}

RunResult read_record(const std::filesystem::path& path) {
  const SweepResult sweep = read_saved_results(path);
  if (sweep.rows.size() != 1) {
    throw ConfigError(
        "'{}' holds {} configurations; project from one, such as `penstock run --json` prints",
        path.native(), sweep.rows.size());
  }
  std::vector<const RunResult*> runs;
  for (const Repetition& repetition : sweep.rows.front().repetitions) {
    const Status status = repetition.result.status;
    if (status == Status::ok || status == Status::draining) runs.push_back(&repetition.result);
  }
  if (runs.empty()) {
    throw ConfigError("'{}' holds no completed run", path.native());
  }
  std::ranges::sort(runs, {}, &RunResult::img_per_s);
  return *runs[runs.size() / 2];
}

ExchangeCourse overlapped(std::span<const ReadyBucket> buckets,
                          const std::function<double(double bytes)>& exchange_ms) {
  ExchangeCourse course;
  double done = -std::numeric_limits<double>::infinity();  // 0: the end of backward
  for (const ReadyBucket& bucket : buckets) {
    const double takes = exchange_ms(bucket.bytes);
    done = std::max(done, -bucket.lead_ms) + takes;
    course.busy_ms += takes;
  }
  course.exposed_ms = std::max(0.0, done);
  return course;
}

ExchangeCourse hidden_share(double exchange_ms, double compute_ms, double share) {
  return {exchange_ms, std::max(0.0, exchange_ms - share * compute_ms)};
}

}  // namespace penstock::scaling
