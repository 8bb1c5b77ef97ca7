// SPDX-License-Identifier: Apache-2.0
// A run of several processes, as `penstock run` lives it: who takes part, whether all were started
// alike, and one result out of those of all ranks.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/run_config.h"
#include "bench/runner.h"
#include "trainer/processes.h"
#include "trainer/update_strategy.h"

namespace penstock {

/// Do several processes train together? Throws
/// ConfigError where the launcher started several and the update runs in one, where there are not
/// as many as --num-processes says, and for settings that a run of several cannot have.
bool spans_processes(const RunConfig& config, const std::optional<Launch>& launch);
/// Joins those processes; null where this one trains alone. Throws what spans_processes throws.
std::unique_ptr<Processes> join_run(const RunConfig& config, const std::optional<Launch>& launch,
                                    Clock& clock);

/// Throws ConfigError for an update whose ranks are threads of one process.
void refuse_one_process_update(const UpdateEntry& update, const Launch& launch);

/// Throws ConfigError for settings that a run of several processes cannot have.
void refuse_unfit(const RunConfig& config);

/// Processes::all_gather, with the others told that this rank waits.
std::vector<std::string> gather(Processes& processes, std::string_view text, Nanoseconds patience,
                                std::string_view what);

/// What a rank must have in common with the others: the program's version, and flags.
std::string describe(std::span<const std::string> flags);
std::string describe(const RunConfig& config);
/// Which ranks differ from rank 0, and in what; empty: none. One description for each rank.
std::string differences(std::span<const std::string> descriptions);
/// Compares all ranks; throws ConfigError on every one of them where some differ.
void check_alike(Processes& processes, const std::string& description);
void check_alike(Processes& processes, const RunConfig& config);

/// Makes the data that are absent, once on each host, and waits for those who do.
void ensure_data_together(Processes& processes, const RunConfig& config, const FeederEntry& feeder,
                          std::stop_token stop);

/// Blocks until every rank is ready to train, with `examples_per_epoch` as it has found them.
/// Throws TimeoutError; ConfigError on every rank where they differ, since a learning rate or a
/// number of steps would too.
void await_all_ready(Processes& processes, double examples_per_epoch);

/// Makes `result`, this rank's, that of the run: all ranks' images over the longest window, and a
/// RankResult for each. Blocks until all ranks called it. Where this rank's run failed or was
/// stopped, or others do not come, a note says that the rates are this rank's alone.
void gather_ranks(Processes& processes, RunResult& result);

/// A line for each rank, beneath the total.
std::string format_ranks(const RunResult& result);

}  // namespace penstock
