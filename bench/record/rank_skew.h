// SPDX-License-Identifier: Apache-2.0
// Finds the rank whose input makes the others wait. Ranks that exchange gradients take a step
// together, so each step lasts as long as the rank needs whose batch comes last. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/document/document.h"
#include "bench/record/run_result.h"
#include "bench/record/sweep_result.h"

namespace penstock {

/// One rank of a training whose ranks step together.
struct RankWaits {
  std::int32_t rank = 0;
  std::string host;  ///< empty: not known
  /// For each step, in order: how long its device had nothing to do because its batch was not
  /// there. By its host's clock, so ranks need no common clock.
  std::vector<double> waits_ms;
};

/// Compares the waits step by step, over the steps that all ranks have. `step_ms`: the mean length
/// of a step.
///
/// - A rank or a host is the culprit if its batches come later than those of all others: the 99 %
///   interval of the mean difference, step by step, lies above 1 % of a step. A host of two or
///   more ranks is named if its ranks are late in the mean, and none of them alone has half of the
///   host's delay.
/// - `moving`: no rank is, but steps wait for changing ranks: the 99 % interval of the mean time
///   between the last batch and the mean of all batches lies above 2 % of a step.
/// - `undecided`: that interval includes 2 % of a step, or ranks wait in fewer than 20 steps.
/// - Anything else, and fewer than two ranks: `none`.
///
/// Both must exceed 0.1 ms. The delay of a culprit is what a step would save if that rank or host
/// were as early as the last one of the others.
///
/// Intervals are those of autocorrelated series (mean_of_series), so a single burst names no rank.
/// For a culprit the mean without the ends of the distribution counts too, so a single stall of
/// another rank does not hide it.
RankSkew find_skew(std::span<const RankWaits> ranks, double step_ms);

/// The share of all steps, in per cent, in which each rank waited longest and another rank waited
/// for it.
std::vector<double> slowest_percents(std::span<const RankWaits> ranks, double step_ms);

/// What the skew means and what to do, in one or two sentences.
std::string sentence_of(const RankSkew& skew);
/// How far the ranks' waits are apart, as a sentence.
std::string spread_sentence(const RankSkew& skew);

/// A table of the processes of a run: rank, host, rate, times until their batches were ready, waits
/// of their devices. Empty if no rank has times.
document::Table ranks_table(std::span<const RankResult> ranks, std::string_view unit);
/// Explains the columns.
std::string_view ranks_terms();

/// The ranks of several records, with the skew between them. A record of a whole job has all ranks
/// of it, and then records of single ranks do not count. Otherwise each record is a rank, and their
/// waits are compared step by step.
struct JoinedRanks {
  std::vector<RankResult> ranks;
  std::optional<RankSkew> skew;
};
JoinedRanks join_ranks(std::span<const RunResult> records);

/// The table of these ranks with what follows. Empty if the runs have no ranks that are processes.
document::Section ranks_section(std::span<const RunResult> records);
/// The same for the runs of a sweep.
document::Section ranks_section(const SweepResult& sweep);

}  // namespace penstock
