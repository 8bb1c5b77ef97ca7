// SPDX-License-Identifier: Apache-2.0
// The ladder: from batches that cost nothing to the whole way from cold files to the device, each
// rung adding one thing. Pure functions.
//
// Stages overlap, so that what a rung adds to a step is what it adds to the slowest of them: costs
// of rungs do not add up to the last one's where another stage hides them. That is what each rung's
// unconsumed supply is for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/isolate/cost.h"
#include "bench/isolate/isolation.h"
#include "bench/isolate/ladder_data.h"

namespace penstock {

struct LadderRung {
  std::string name, adds;
  RunConfig config;
  bool is_ceiling = false;
  bool branch = false;  ///< compared with the ceiling only
  std::string part;     ///< this and the next as RungFinding has them
  bool own_producer = false;
  std::string proof;        ///< a fact that is 1 where the run was what the rung claims
  std::string unavailable;  ///< why it cannot be measured at all
  /// Of the set that it reads, where samples are not files; 0: as many as there are files.
  std::uint64_t examples = 0;

  // Rows of the sweep that were measured for it.
  std::optional<std::size_t> row, supply_row;
};

/// From the ceiling up to cold files, and ZeroMQ as a branch. Trainer, threads and slots are those
/// of `base`; rungs that decode keep the options of its feeder where that is `queue`. Folders are
/// decoded from memory before their files are read; a set of another format is read where it lies,
/// from the page cache, and one of pixels has no rungs of decoding.
std::vector<LadderRung> ladder_rungs(const RunConfig& base, const LadderData& data);

/// Why a rung without a single run has no figures.
extern const char* const kBudgetEnded;

/// Resolves the rung's configuration, or says why there is none.
void complete_rung(LadderRung& rung);

/// What the rows of `rungs` show, in their order. The first rung is the ceiling.
std::vector<RungFinding> find_rungs(const SweepResult& sweep, std::span<const LadderRung> rungs,
                                    const CostTargets& targets);

/// The longest window of a rung that must not read a sample twice, from what a pilot run of it
/// says; none: it may be as long as others.
std::optional<std::int64_t> longest_window(const LadderRung& rung, const RunResult& pilot);

}  // namespace penstock
