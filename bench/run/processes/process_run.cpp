// SPDX-License-Identifier: Apache-2.0
#include "bench/run/processes/process_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "bench/analysis/rank_steps.h"
#include "bench/config/training_loop.h"
#include "bench/dataset/default_dataset.h"
#include "bench/record/environment.h"
#include "bench/record/exit_code.h"
#include "bench/record/machine.h"
#include "bench/record/wait_cause.h"
#include "bench/run/processes/packed_steps.h"
#include "bench/run/processes/run_exchange.h"
#include "dataflow/error.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

/// Timeout for making data and for compiling.
constexpr Nanoseconds kPreparing = std::chrono::minutes(10);

constexpr std::string_view kPlaces[] = {"{rank}", "{local_rank}", "{host}"};

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos;
       at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

void refuse(std::string_view flag, std::string_view value, std::string_view instead) {
  throw ConfigError("--{} is {}, in a run of several processes; {}", flag, value, instead);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// Ranks that step together end together. Others may be late by the duration of a step.
Nanoseconds patience_of_goodbye(const RunConfig& config) {
  return std::max(cluster::Processes::kGoodbye, patience_of(config));
}

/// Adds counters to the sums over all ranks. Ranks count the same steps, so counters of steps take
/// the maximum.
void add_counters(const Json& counters, std::map<std::string, std::int64_t>& sums) {
  for (const auto& [name, value] : counters.items()) {
    std::int64_t& sum = sums[name];
    const auto count = value.get<std::int64_t>();
    sum = name.ends_with("_steps") ? std::max(sum, count) : sum + count;
  }
}

/// Adds up counters and supplies of all ranks. Returns the size of the longest steps.
std::size_t merge_ranks(std::span<const std::string> texts, RunResult& result) {
  std::size_t longest = 0;
  result.counters.clear();
  result.sustained_img_per_s = 0;
  for (const std::string& text : texts) {
    const Json rank = Json::parse(text);
    result.ranks.push_back({.rank = static_cast<std::int32_t>(result.ranks.size()),
                            .host = rank.at("host"),
                            .img_per_s = rank.at("img_per_s"),
                            .window_s = rank.at("window_s"),
                            .batch_ms = rank.at("batch_ms")});
    add_counters(rank.at("counters"), result.counters);
    result.sustained_img_per_s += rank.at("sustained_img_per_s").get<double>();
    longest = std::max(longest, rank.at("step_bytes").get<std::size_t>());
  }
  result.images_per_step *= static_cast<std::int64_t>(texts.size());
  return longest;
}

/// Computes what follows from the steps of all processes, on rank 0. `longest` is the size of the
/// longest steps; all processes pass the same.
void merge_steps(cluster::Processes& processes, const std::string& mine, std::size_t longest,
                 Nanoseconds patience, RunResult& result) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;  // times ranks, below the limit of MPI
  std::vector<std::string> all(static_cast<std::size_t>(processes.launch().size));
  for (std::size_t at = 0; at < longest; at += kPiece) {
    const std::string_view piece = std::string_view(mine).substr(std::min(at, mine.size()), kPiece);
    const std::vector<std::string> pieces =
        gather(processes, piece, patience, "gathering the ranks' steps");
    if (processes.launch().rank != 0) continue;
    for (std::size_t rank = 0; rank < all.size(); ++rank) all[rank] += pieces[rank];
  }
  if (processes.launch().rank != 0) return;
  RankSteps steps;
  std::vector<DevicesOf> devices;
  for (const std::string& bytes : all) {
    const std::size_t first = steps.legs.empty() ? 0 : steps.legs.front().size();
    join_steps(steps, bytes);
    const std::size_t now = steps.legs.empty() ? 0 : steps.legs.front().size();
    devices.push_back({first, now - first});
  }
  const std::string own_waits = describe_waits(result);
  add_steps(steps, result);
  std::ranges::replace(result.notes, own_waits, describe_waits(result));
  add_rank_waits(steps, devices, result);
  note_steps_outside(result);
}

/// What the record of one rank says of it.
RankResult alone(std::int32_t rank, const RunResult& own) {
  RunResult result = own;
  result.ranks = {{.rank = rank,
                   .host = host_name(),
                   .img_per_s = own.img_per_s,
                   .window_s = own.window_s,
                   .batch_ms = work_ms_of(own)}};
  const std::size_t devices = own.rank_steps.legs.empty() ? 0 : own.rank_steps.legs.front().size();
  add_rank_waits(own.rank_steps, std::vector<DevicesOf>{{0, devices}}, result);
  return result.ranks.front();
}

}  // namespace

void refuse_one_process_update(const UpdateEntry& update, const cluster::Launch& launch) {
  if (update.ranks != RankKind::threads) return;
  throw ConfigError(
      "{} started {} processes, and --variable-update {} trains in one; use --variable-update "
      "replicated, or start without {}",
      launch.launcher, launch.size, update.name, launch.launcher);
}

void refuse_unfit(const RunConfig& config) {
  if (config.extend_window) {
    refuse("extend-window", "true", "windows have to be equally long: raise --num-batches");
  }
  const UpdateEntry* const update = entry_of(update_table(), config.variable_update);
  const bool agrees = update == nullptr || update->agreement == Agreement::identical;
  if (!config.train_dir.empty() && !config.eval && !agrees) {
    refuse("train-dir", config.train_dir,
           fmt::format("with --variable-update {} each rank has different weights, and a "
                       "checkpoint holds those of one; leave --train-dir out, or use an update "
                       "whose ranks agree, such as replicated",
                       config.variable_update));
  }
}

bool spans_processes(const RunConfig& config, const std::optional<cluster::Launch>& launch) {
  const std::int32_t size = launch ? launch->size : 1;
  if (config.num_processes > 0 && config.num_processes != size) {
    throw ConfigError(
        "--num-processes is {}, and {} started; start with `mpirun -np {}`", config.num_processes,
        size == 1 ? "this one alone was" : fmt::format("{} were", size), config.num_processes);
  }
  if (size == 1) return false;
  const std::string update = parse_component(config.variable_update).name;
  refuse_one_process_update(find_entry(update_table(), update), *launch);
  refuse_unfit(config);
  return true;
}

int run_rank(const RunPeers& peers, const RunConfig& config, const std::stop_token& stop,
             const RankBody& body) {
  cluster::Processes& processes = *peers.processes;
  int code = 0;
  try {
    check_alike(processes, describe(to_flags(config)));
    code = body(peers);
  } catch (const std::exception& error) {
    fmt::print(stderr, "penstock: rank {}: {}\n", processes.launch().rank, failure_text(error));
    code = stop.stop_requested() ? exit_code_of_stop() : exit_code_of(std::current_exception());
  }
  std::fflush(stdout);
  if (code != 0 && peers.watch != nullptr) peers.watch->leave();
  if (stop.stop_requested()) processes.exit_stopped(code);
  if (code != 0) processes.abort(code);
  return code;
}

int run_launched(const RunConfig& config, const std::optional<cluster::Launch>& launch,
                 const cluster::FindVariable& find, const std::stop_token& stop,
                 const RankBody& body) {
  if (!spans_processes(config, launch)) return body({});
  SteadyClock clock;
  PeerWatch watch(config, *launch, find);
  // The launcher ends all ranks after a loss or an interruption. A rank that stops because of that
  // is not lost.
  const std::stop_callback leaving(stop, [&watch] { watch.leave(); });
  // The watch of an MPI job knows before MPI who is missing.
  const Nanoseconds rendezvous =
      rank_deadlines(config).rendezvous + (launch->mpi ? kAheadOfWait : Nanoseconds{});
  const std::unique_ptr<cluster::Processes> processes =
      cluster::join_processes(*launch, clock, rendezvous, stop);
  try {
    watch.follow(*processes);
  } catch (const std::exception& error) {  // a rank was lost or hangs
    fmt::print(stderr, "penstock: rank {}: {}\n", launch->rank, failure_text(error));
    if (stop.stop_requested()) processes->exit_stopped(exit_code_of_stop());
    processes->abort(exit_code_of(std::current_exception()));
  }
  return run_rank({.processes = processes.get(), .watch = &watch}, config, stop, body);
}

std::vector<std::byte> from_rank_0(cluster::Processes& processes, std::string_view what,
                                   const std::function<std::span<const std::byte>()>& read) {
  constexpr std::size_t kPiece = std::size_t{16} << 20;  // servers pass texts on in one message
  const bool reads = processes.launch().rank == 0;
  std::span<const std::byte> mine;
  std::exception_ptr failure;
  std::string outcome;  // an exit code, then the number of bytes or the message
  if (reads) {
    try {
      mine = read();
      outcome = fmt::format("0 {}", mine.size());
    } catch (const std::exception& error) {
      failure = std::current_exception();
      outcome = fmt::format("{} {}", exit_code_of(failure), error.what());
    }
  }
  outcome = gather(processes, outcome, kPreparing, what).front();
  if (failure != nullptr) std::rethrow_exception(failure);
  const std::size_t space = outcome.find(' ');
  const std::string code = outcome.substr(0, space), rest = outcome.substr(space + 1);
  if (code != "0") {
    const std::string message = fmt::format("on rank 0: {}", rest);
    if (code == "6") throw DataError(message);
    throw ConfigError(message);
  }
  const auto size = static_cast<std::size_t>(parse_integer(rest, what));
  std::vector<std::byte> bytes;
  for (std::size_t at = 0; at < size; at += kPiece) {
    const auto piece = reads ? mine.subspan(at, std::min(kPiece, size - at)) : mine;
    const std::string_view text(reinterpret_cast<const char*>(piece.data()), piece.size());
    const std::string said = gather(processes, text, kPreparing, what).front();
    const auto more = std::as_bytes(std::span(said));
    if (!reads) bytes.insert(bytes.end(), more.begin(), more.end());
  }
  return bytes;
}

std::string describe(std::span<const std::string> flags) {
  const Environment environment = read_environment();
  std::string text =
      fmt::format("penstock-{} revision-{}\n", environment.version, environment.revision);
  for (const std::string& flag : flags) text += flag + "\n";
  return text;
}

std::string differences(std::span<const std::string> descriptions) {
  std::string text;
  const std::vector<std::string> first = lines_of(descriptions[0]);
  for (std::size_t rank = 1; rank < descriptions.size(); ++rank) {
    if (descriptions[rank] == descriptions[0]) continue;
    const std::vector<std::string> other = lines_of(descriptions[rank]);
    const auto only_in = [](const std::vector<std::string>& a, const std::vector<std::string>& b) {
      std::string lines;
      for (const std::string& line : a) {
        if (std::ranges::find(b, line) == b.end()) lines += " " + line;
      }
      return lines.empty() ? " nothing" : lines;
    };
    text += fmt::format("{}rank {} has{} instead of{} on rank 0", text.empty() ? "" : "; ", rank,
                        only_in(other, first), only_in(first, other));
  }
  return text;
}

void check_alike(cluster::Processes& processes, const std::string& description) {
  const std::vector<std::string> descriptions =
      gather(processes, description, cluster::Processes::kRendezvous,
             "comparing how the ranks were started");
  const std::string text = differences(descriptions);
  if (!text.empty()) {
    throw ConfigError("ranks were started differently: " + text +
                      "; start all of them with the same program and flags");
  }
}

void ensure_data_together(cluster::Processes& processes, const RunConfig& config,
                          const FeederEntry& feeder, std::stop_token stop) {
  dataset::refuse_missing_data(config);
  if (processes.launch().local_rank == 0) dataset::ensure_data_of(config, feeder, std::move(stop));
  gather(processes, "", kPreparing, "waiting for the data that a rank makes");
}

void await_all_ready(cluster::Processes& processes, double examples_per_epoch) {
  const std::vector<std::string> examples =
      gather(processes, fmt::format("{:.0f}", examples_per_epoch), kPreparing,
             "waiting for all ranks to be ready");
  const auto other = std::ranges::find_if(
      examples, [&](const std::string& text) { return text != examples.front(); });
  if (other == examples.end()) return;
  throw ConfigError(
      "ranks disagree on the examples in an epoch: {} on rank {} and {} on rank 0; expected the "
      "same data set on all hosts; compare the files in --data-dir there, and the limit of a "
      "source memory",
      *other, other - examples.begin(), examples.front());
}

void gather_ranks(cluster::Processes& processes, RunResult& result) {
  const auto note = [&](std::string_view why) {
    result.notes.push_back(
        fmt::format("rates are those of rank {} only: {}", processes.launch().rank, why));
  };
  if (const std::int32_t restarts = processes.launch().restarts; restarts > 0) {
    result.notes.push_back(
        fmt::format("the launcher has restarted this job {} time{}: other processes ran before "
                    "this measurement",
                    restarts, restarts == 1 ? "" : "s"));
  }
  // Keep what was measured before another rank was lost.
  if (result.exit_code == 5 && !result.step_ms.empty()) result.status = Status::partial;
  if (result.exit_code != 0) return note("the run did not complete");
  const std::string steps = pack_steps(result.rank_steps);
  const Json mine{{"host", host_name()},
                  {"img_per_s", result.img_per_s},
                  {"sustained_img_per_s", result.sustained_img_per_s},
                  {"window_s", result.window_s},
                  {"counters", result.counters},
                  {"batch_ms", work_ms_of(result)},
                  {"step_bytes", steps.size()}};
  const Nanoseconds patience = patience_of_goodbye(result.config);
  try {
    const RunResult own = result;
    const std::vector<std::string> texts =
        gather(processes, mine.dump(), patience, "gathering the ranks' results");
    merge_steps(processes, steps, merge_ranks(texts, result), patience, result);
    if (const std::int32_t rank = processes.launch().rank; rank != 0) {
      result = own;
      result.ranks = {alone(rank, result)};
      result.notes.push_back(fmt::format(
          "these are the figures of rank {} alone; the record of rank 0 has those of all ranks",
          rank));
    }
  } catch (const Error& error) {
    result.status = Status::partial;
    result.exit_code = exit_code_of(std::current_exception());
    result.reason = error.what();
    note("others could not be gathered");
  }
}

void check_places(std::string_view what, std::string_view text) {
  constexpr std::string_view kName = "abcdefghijklmnopqrstuvwxyz_";
  for (std::size_t at = text.find('{'); at != std::string_view::npos; at = text.find('{', at + 1)) {
    const std::size_t end = text.find_first_not_of(kName, at + 1);
    if (end == std::string_view::npos || text[end] != '}' || end == at + 1) continue;
    const std::string_view place = text.substr(at, end + 1 - at);
    if (std::ranges::find(kPlaces, place) != std::end(kPlaces)) continue;
    throw ConfigError("{} is '{}', and {} has no value; expected {}", what, text, place,
                      fmt::join(kPlaces, ", "));
  }
}

bool has_place(std::string_view text) {
  return std::ranges::any_of(
      kPlaces, [&](std::string_view place) { return text.find(place) != std::string_view::npos; });
}

std::string for_rank(std::string text, const RunPeers& peers) {
  const cluster::Launch launch =
      peers.processes == nullptr ? cluster::Launch() : peers.processes->launch();
  const std::string values[] = {std::to_string(launch.rank), std::to_string(launch.local_rank),
                                host_name()};
  for (std::size_t i = 0; i < std::size(kPlaces); ++i) replace_all(text, kPlaces[i], values[i]);
  return text;
}

void check_places_of(const std::string& feeder) {
  for (const auto& [name, value] : parse_component(feeder).values) {
    if (name == "endpoint") check_places("the feeder's endpoint", value);
  }
}

std::string feeder_for_rank(const std::string& feeder, const RunPeers& peers) {
  std::string text = feeder;
  if (peers.processes != nullptr && peers.processes->launch().local_size > 1) {
    std::string endpoint, producer;
    for (const auto& [name, value] : parse_component(feeder).values) {
      if (name == "endpoint") endpoint = value;
      if (name == "producer") producer = value;
    }
    if (endpoint.starts_with("ipc://") && !has_place(endpoint) &&
        producer.find(endpoint) != std::string::npos) {
      replace_all(text, endpoint, endpoint + "-{local_rank}");
    }
  }
  return for_rank(std::move(text), peers);
}

std::string format_ranks(const RunResult& result) {
  std::string text;
  for (std::size_t rank = 0; rank < result.ranks.size(); ++rank) {
    text += fmt::format("rank {} on {}: {:.2f} {}/sec\n", rank, result.ranks[rank].host,
                        result.ranks[rank].img_per_s, samples_name(result.config));
  }
  return text;
}

}  // namespace penstock
