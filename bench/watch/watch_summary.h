// SPDX-License-Identifier: Apache-2.0
// The figures of a watched training, and the text about them. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>

#include "bench/document/document.h"
#include "bench/record/rank_skew.h"
#include "bench/watch/watch_record.h"

namespace penstock::watch {

/// Figures of one loop. Rates, shares and percentiles are those of its steady steps, all but the
/// first of each epoch, unless they say otherwise.
struct LoopSummary {
  std::size_t batches = 0;      ///< of all epochs, with their first ones
  std::int64_t images = 0;      ///< of all batches; 0: not known
  std::int32_t batch_size = 0;  ///< the largest number of images; 0: not known
  std::size_t steady = 0;       ///< number of steady steps
  // Only if there are steady steps:
  double waited_percent = 0;  ///< share of their time in `next`
  /// Share of the time of those steps that tell it, in which the GPU waited for the batch.
  std::optional<double> gpu_waited_percent{};
  double batches_per_s = 0;
  double rate = 0;  ///< in the loop's unit a second; 0: not known
  double wait_ms_p50 = 0, wait_ms_p95 = 0, wait_ms_p99 = 0, wait_ms_max = 0;
  /// Share of the time from the second batch to the last one, edges of epochs included. Only if
  /// there are steady steps or edges.
  std::optional<double> waited_percent_with_edges{};
  // Apart from those:
  double first_batch_s = 0;  ///< the wait for the very first batch
  std::size_t epochs = 0;    ///< begun
  /// The waits that found the end of an epoch, and those for the first batches of later epochs.
  double epoch_edges_s = 0;
};
LoopSummary summary_of(const Loop& loop);
/// `unit`: that of the loop.
nlohmann::ordered_json summary_json(const LoopSummary& summary, std::string_view unit);

/// How the main loop of the first rank runs ahead of its device.
struct LoopPace {
  bool waits_for_steps = true;  ///< without times of a GPU it computes in the loop itself
  double launch_ms = 0;         ///< the loop's time outside `next`, if it runs ahead
};
/// None without steady steps.
std::optional<LoopPace> loop_pace(const WatchRecord& record);

/// Whose input makes the others wait, by the waits of the main loop in the steps that every rank
/// has. None with a single rank, or if two processes have the same rank.
std::optional<RankSkew> skew_of(const WatchRecord& record);

/// The report: a table of loops, what follows, and how to read it.
document::Document document_of(const WatchRecord& record);

}  // namespace penstock::watch
