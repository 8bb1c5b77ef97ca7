// SPDX-License-Identifier: Apache-2.0
// The ladder: a series of rungs from free batches to the complete way from cold files to the
// device. Each rung adds one thing. Only ladder_data reads files.
//
// Stages overlap, so a rung adds to a step only what it adds to the slowest stage. If another stage
// hides the cost of a rung, the costs of all rungs do not add up to the cost of the last one. The
// unconsumed supply of each rung shows such costs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "bench/analysis/cost.h"
#include "bench/config/run_config.h"
#include "bench/record/sweep_result.h"
#include "bench/statistics/estimate.h"
#include "bench/statistics/input_cost.h"
#include "dataflow/options.h"
#include "dataflow/source.h"

namespace penstock::isolate {

/// The data set that the rungs of a ladder read.
struct LadderData {
  /// The set is a folder of class folders, which the source `memory` can hold.
  bool is_folder = true;
  SampleKind kind = SampleKind::encoded;
  std::uint64_t examples = 0;  ///< of a set that is not such a folder
};

/// Inspects the data set that `queue` reads with this configuration; its files must exist. Throws
/// ConfigError if the format is unknown or the set is unusable, and Error if a stop is requested
/// meanwhile.
LadderData ladder_data(const RunConfig& config, const std::stop_token& stop = {});

/// A side of a feeder that receives from other processes. producer_or_network: batches carry no
/// times that would tell.
enum class Side : unsigned char { none, producer, network, consumer, producer_or_network };
constexpr std::string_view to_string(Side side) noexcept {
  constexpr std::string_view kNames[] = {"nobody", "producer", "network", "consumer",
                                         "producer or network"};
  return kNames[static_cast<std::size_t>(side)];
}

/// One rung of the ladder.
struct RungFacts {
  std::string name;           ///< "decode, centre crop"
  std::string adds;           ///< "JPEG decoding of whole images"
  bool branch = false;        ///< compared with the ceiling only
  Side part = Side::none;     ///< that it bounds
  bool own_producer = false;  ///< served by the ladder on this machine: no network is involved
  std::string unavailable{};  ///< why it was not measured; empty: it was
};

struct RungFinding : RungFacts {
  std::size_t row = 0;                             ///< of the sweep: the run coupled to the trainer
  std::optional<analysis::InputCostFinding> cost;  ///< compared with the ceiling
  std::optional<statistics::Estimate> added_ms;  ///< compared with the rung before; may be negative
  std::optional<statistics::Estimate> supply_img_per_s;  ///< unconsumed
};

struct LadderRung : RungFacts {
  RunConfig config;
  bool is_ceiling = false;
  std::string proof;  ///< name of a fact that is 1 if the run was what the rung claims
  /// Size of the data set that it reads, if samples are not files; 0: the number of files.
  std::uint64_t examples = 0;

  // Rows of the sweep that were measured for this rung.
  std::optional<std::size_t> row, supply_row;
};

/// Returns the rungs from the ceiling to cold files, and ZeroMQ as a branch. Trainer, threads and
/// slots are those of `base`. Rungs that decode keep the options of its feeder if that is `queue`.
/// Folders are decoded from memory first, then read from files. A data set of another format is
/// read in place, from the page cache. A data set of pixels has no rungs of decoding.
std::vector<LadderRung> ladder_rungs(const RunConfig& base, const LadderData& data);

/// The rungs of a Python loader: handing over alone, collating alone, the whole loader; beside them
/// samples alone, and Penstock's decoder on the files of --data-dir, if that is given.
std::vector<LadderRung> loader_rungs(const RunConfig& base);

/// The value of an option of a feeder, as typed; none: it is not typed.
std::optional<std::string> value_of(const ComponentText& feeder, std::string_view option);
bool is_on(const ComponentText& feeder, std::string_view option);
/// The text of the feeder with this value of the option; an empty value removes the option.
std::string with_value(ComponentText feeder, std::string_view option, const std::string& value);

/// Adds a rung that runs `base` with another feeder.
LadderRung& add_rung(std::vector<LadderRung>& rungs, const RunConfig& base, std::string name,
                     std::string adds, std::string feeder);

/// Why a rung without any run has no figures.
inline constexpr const char* kBudgetEnded =
    "the ladder's budget ended before this rung; raise --ladder-budget";

/// Resolves the rung's configuration, or says why there is none.
void complete_rung(LadderRung& rung);

/// Returns what the rows of `rungs` show, in the order of `rungs`. The first rung is the ceiling.
std::vector<RungFinding> find_rungs(const SweepResult& sweep, std::span<const LadderRung> rungs,
                                    const statistics::CostTargets& targets);

/// The longest window of a rung that must not read a sample twice, from its pilot run; none: there
/// is no limit.
std::optional<std::int64_t> longest_window(const LadderRung& rung, const RunResult& pilot);

}  // namespace penstock::isolate
