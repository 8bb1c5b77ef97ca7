// SPDX-License-Identifier: Apache-2.0
// What a projection takes from a record: how long a device computes, when its gradients are ready,
// how much they are, how fast its feeder is. What the record does not say is derived from the
// model's graph, and the notes say so.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bench/projection/overlap.h"
#include "bench/runner.h"
#include "trainer/graph.h"

namespace penstock {

struct MeasuredStep {
  std::string model, what;                 ///< what: feeder, update, device
  std::int32_t batch = 0;                  ///< images of a device
  std::int64_t ranks = 1;                  ///< devices of the record
  double img_per_s = 0;                    ///< that it reached with them
  double forward_ms = 0, backward_ms = 0;  ///< of a device that waits for nobody; the update is in
                                           ///< backward
  double jitter_ms = 0;                    ///< standard deviation of its steps
  std::vector<ReadyBucket> buckets;        ///< f32, in the order of their exchange
  std::optional<double> feeder_img_per_s;  ///< of a host, where the record shows its limit
  std::vector<std::string> notes;

  double compute_ms() const noexcept { return forward_ms + backward_ms; }
};

/// Of a run that ended well. Throws ConfigError for those that did not, that have no steps, or
/// whose model has no gradients.
MeasuredStep measured_step(const RunResult& run);

/// The run in a file of results; of several the one with the median rate. Throws ConfigError where
/// it holds runs of different configurations, or none that ended well.
RunResult read_record(const std::filesystem::path& path);

/// The share of forward in a step, by multiply-accumulates: backward takes twice as many as
/// forward, once for the inputs' gradients and once for the weights', but for the inputs of the
/// first layer.
double forward_share(const Graph& graph);

/// When gradients are ready, as shares of backward that are left then, and their bytes as f32,
/// packed into buckets like trainer/buckets.h does; by the same count.
std::vector<ReadyBucket> derived_buckets(const Graph& graph, double first_bucket_mib,
                                         double bucket_mib, double backward_ms);

}  // namespace penstock
