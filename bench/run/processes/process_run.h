// SPDX-License-Identifier: Apache-2.0
// Runs several processes as one run, for `penstock run`: decides which processes take part, checks
// that all were started alike, and merges the results of all ranks.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "bench/config/run_config.h"
#include "bench/record/run_result.h"
#include "bench/run/processes/peer_watch.h"
#include "feeders/feeder.h"
#include "trainer/cluster/processes.h"
#include "trainer/update_strategy.h"

namespace penstock::cluster {
class ServerConnection;
}

namespace penstock {

/// The other processes of a run. Null: there are none of that kind.
struct RunPeers {
  cluster::Processes* processes = nullptr;  ///< the ranks, and this process among them
  PeerWatch* watch = nullptr;               ///< reports lost ranks
  cluster::ServerConnection* servers = nullptr;

  bool is_first() const { return processes == nullptr || processes->launch().rank == 0; }
};

/// One process's part of a run. It and the functions below return the exit code.
using RankBody = std::function<int(const RunPeers& peers)>;

/// Calls `body` if all ranks were started alike. If it fails, all ranks end.
int run_rank(const RunPeers& peers, const RunConfig& config, const std::stop_token& stop,
             const RankBody& body);
/// Joins the processes that the launcher started, watches them, and calls run_rank; or calls `body`
/// if this process trains alone. Throws the same as spans_processes, Unavailable or TimeoutError.
int run_launched(const RunConfig& config, const std::optional<cluster::Launch>& launch,
                 const cluster::FindVariable& find, const std::stop_token& stop,
                 const RankBody& body);

/// True if several processes train together. Throws ConfigError if the launcher started several
/// processes and the update supports one only, if their number differs from --num-processes, or for
/// settings that do not support several processes.
bool spans_processes(const RunConfig& config, const std::optional<cluster::Launch>& launch);

/// Throws ConfigError if the ranks of the update are threads of one process.
void refuse_one_process_update(const UpdateEntry& update, const cluster::Launch& launch);

/// Throws ConfigError for settings that do not support several processes.
void refuse_unfit(const RunConfig& config);

/// Gives the other ranks what `read` returns on rank 0, where alone it is called, and where the
/// result is empty. If it throws, every rank throws: rank 0 the same, others ConfigError or
/// DataError with its message. `what` is for messages about ranks that do not come.
std::vector<std::byte> from_rank_0(cluster::Processes& processes, std::string_view what,
                                   const std::function<std::span<const std::byte>()>& read);

/// Lists what all ranks must have in common: the program's version, and flags.
std::string describe(std::span<const std::string> flags);
/// Lists which ranks differ from rank 0, and how; empty: none. Takes one description per rank.
std::string differences(std::span<const std::string> descriptions);
/// Compares all ranks. If some differ, throws ConfigError on every rank.
void check_alike(cluster::Processes& processes, const std::string& description);

/// Creates missing data, once per host, and waits for the ranks that create it.
void ensure_data_together(cluster::Processes& processes, const RunConfig& config,
                          const FeederEntry& feeder, std::stop_token stop);

/// Blocks until every rank is ready to train. `examples_per_epoch` is this rank's value. Throws
/// TimeoutError. Throws ConfigError on every rank if the values differ, because learning rates or
/// numbers of steps would differ too.
void await_all_ready(cluster::Processes& processes, double examples_per_epoch);

/// Turns rank 0's `result` into the run's: what follows from the steps of all ranks (rank_steps.h),
/// and a RankResult per process. Blocks until all ranks have called it. If this rank's run
/// failed or was stopped, or other ranks do not arrive, a note says that the rates are only this
/// rank's.
void gather_ranks(cluster::Processes& processes, RunResult& result);

/// Throws ConfigError if the text, which `what` names, has a place in braces that has no value, as
/// {node}. Braces around anything but a name are no places.
void check_places(std::string_view what, std::string_view text);
/// The same for the endpoint of a feeder; its other options may be commands with braces.
void check_places_of(const std::string& feeder);
/// True if the text has one of the places {rank}, {local_rank} and {host}.
bool has_place(std::string_view text);
/// The text with this process's values in these places.
std::string for_rank(std::string text, const RunPeers& peers);
/// The feeder with its places filled in. Ranks of one host that each start a producer at the same
/// ipc:// address get addresses that end in their local rank.
std::string feeder_for_rank(const std::string& feeder, const RunPeers& peers);

/// One line per rank, to print below the total.
std::string format_ranks(const RunResult& result);

}  // namespace penstock
