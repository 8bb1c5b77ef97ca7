// SPDX-License-Identifier: Apache-2.0
// Reads the input of a projection from a record: compute time, the times when gradients are ready,
// their sizes, and the feeder's rate. Values that the record lacks are derived from the model's
// graph, and the notes say so.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/record/run_result.h"
#include "trainer/graph.h"

namespace penstock::scaling {

/// A bucket of gradients in one step.
struct ReadyBucket {
  double bytes = 0;
  double lead_ms = 0;  ///< from its completion to the end of backward
};

struct ExchangeCourse {
  double busy_ms = 0;     ///< time spent in the exchange
  double exposed_ms = 0;  ///< the part of busy_ms after the end of backward
};

/// Each bucket starts when it is complete and the previous bucket is done:
/// c_j = max(c_(j-1), t_j) + T_j; exposed = max(0, c_last - T_b). Buckets are in the order of their
/// exchange. `exchange_ms` returns the time for one bucket of the given bytes.
ExchangeCourse overlapped(std::span<const ReadyBucket> buckets,
                          const std::function<double(double bytes)>& exchange_ms);

/// The closed form: exposed = max(0, exchange - share * compute).
ExchangeCourse hidden_share(double exchange_ms, double compute_ms, double share);

struct MeasuredStep {
  std::string model, what;                 ///< what: feeder, update, device
  std::int32_t batch = 0;                  ///< images per device
  std::int64_t ranks = 1;                  ///< devices of the record
  double img_per_s = 0;                    ///< rate of the record with these devices
  double forward_ms = 0, backward_ms = 0;  ///< of a device that never waits; the update is part of
                                           ///< backward
  double jitter_ms = 0;                    ///< standard deviation of step times
  std::vector<ReadyBucket> buckets;        ///< f32, in the order of their exchange
  std::optional<double> feeder_img_per_s;  ///< per host, if the record shows its limit
  std::vector<std::string> notes;

  double compute_ms() const noexcept { return forward_ms + backward_ms; }
};

/// Needs a run that ended well. Throws ConfigError for other runs, for runs without steps, and for
/// models without gradients.
MeasuredStep measured_step(const RunResult& run);

/// Returns the run in a file of results; of several runs, the one with the median rate. Throws
/// ConfigError if the runs have different configurations, or if none ended well.
RunResult read_record(const std::filesystem::path& path);

/// The share of forward in a step, by multiply-accumulates. Backward takes twice as many as
/// forward: once for the gradients of inputs and once for those of weights. The first layer needs
/// no gradients of inputs.
double forward_share(const Graph& graph);

/// Derives when gradients are ready, as the share of backward that remains, by the same count.
/// Packs their f32 bytes into buckets as trainer/buckets.h does.
std::vector<ReadyBucket> derived_buckets(const Graph& graph, double first_bucket_mib,
                                         double bucket_mib, double backward_ms);

}  // namespace penstock::scaling
