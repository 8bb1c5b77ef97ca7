// SPDX-License-Identifier: Apache-2.0
#include "bench/run/processes/launch_flags.h"

#include <fmt/format.h>

#include <cstdlib>

#include "bench/record/environment.h"
#include "dataflow/error.h"

namespace penstock {
namespace {

constexpr std::int64_t kMostProcesses = 65536;

/// "RANK says that this is rank 1 of 2 processes that torchrun started".
std::string described(const cluster::Launch& launch) {
  return fmt::format("{} says that this is rank {} of {} processes that {} started",
                     launch.rank_name, launch.rank,
                     launch.size == 0 ? "several" : std::to_string(launch.size), launch.launcher);
}

bool is_by_hand(const LaunchArguments& arguments) {
  return !arguments.rendezvous.empty() || arguments.rank >= 0 || arguments.world_size > 0;
}

/// Puts what the flags say into `launch`.
void apply(const LaunchArguments& arguments, cluster::Launch& launch) {
  if (arguments.rank >= 0) {
    launch.rank = arguments.rank;
    launch.rank_name = "--rank";
  }
  if (arguments.world_size > 0) launch.size = arguments.world_size;
  if (!arguments.rendezvous.empty()) {
    launch.meeting = arguments.rendezvous;
    launch.mpi = false;
  }
  if (launch.size > 0 && launch.rank >= launch.size) {
    throw ConfigError(
        "{} is {} and the number of processes is {}; expected a rank below it; --world-size sets "
        "it",
        launch.rank_name, launch.rank, launch.size);
  }
}

}  // namespace

Flag alone_flag(bool& alone) {
  return FlagGroup{"Several processes"}.boolean(
      "alone", "measure in this process alone, although a launcher started several", alone);
}

std::vector<Flag> launch_flags(LaunchArguments& arguments) {
  const FlagGroup flag{"Several processes"};
  return {flag("rendezvous",
               "where ranks meet over TCP, a host of rank 0 and a free port: HOST:PORT; default: "
               "what the launcher says",
               "",
               [&arguments](const std::string& text) {
                 cluster::port_of(text, "--rendezvous");
                 arguments.rendezvous = text;
               }),
          flag.count("rank", "rank of this process; -1: what the launcher says", arguments.rank, -1,
                     kMostProcesses - 1),
          flag.count("world_size", "number of processes of the run; 0: what the launcher says",
                     arguments.world_size, 0, kMostProcesses),
          alone_flag(arguments.alone)};
}

std::vector<std::string> without_rank(std::span<const std::string> arguments) {
  std::vector<std::string> others;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view word = arguments[i];
    if (word == "--rank" || word == "-rank") {
      ++i;  // its value
    } else if (!word.starts_with("--rank=") && !word.starts_with("-rank=")) {
      others.emplace_back(word);
    }
  }
  return others;
}

std::optional<cluster::Launch> find_launch(const LaunchArguments& arguments,
                                           const cluster::FindVariable& find) {
  if (arguments.alone) {
    if (!is_by_hand(arguments)) return std::nullopt;
    throw ConfigError(
        "--alone is of a process without ranks; leave out --rendezvous, --rank and --world-size");
  }
  std::optional<cluster::Launch> launch = cluster::read_launch(find);
  if (is_by_hand(arguments)) {
    if (!launch && (arguments.rank < 0 || arguments.world_size == 0)) {
      throw ConfigError(
          "no launcher says which rank this process is; give all of --rendezvous HOST:PORT, --rank "
          "R and --world-size N");
    }
    if (!launch) launch = cluster::Launch{.launcher = "--world-size"};
    apply(arguments, *launch);
  }
  if (!launch || launch->size == 1) return launch;
  if (launch->size == 0) {
    throw ConfigError(
        "{}, and nothing says how many; give --world-size N and --rendezvous HOST:PORT, or --alone "
        "if this process measures alone",
        described(*launch));
  }
  if (!launch->mpi && launch->meeting.empty()) {
    throw ConfigError(
        "{}, and nothing says where they meet; give --rendezvous HOST:PORT (a host of rank 0, and "
        "a free port), or --alone if every process measures alone",
        described(*launch));
  }
  if (!launch->mpi) {
    cluster::port_of(launch->meeting, "the place where ranks meet");
    const Environment environment = read_environment();
    launch->program = fmt::format("{} ({})", environment.version, environment.revision);
  }
  return launch;
}

void expect_one_process(std::string_view verb, bool alone) {
  if (alone) {
    cluster::for_each_rank_name([](const std::string& name) { unsetenv(name.c_str()); });
    return;
  }
  const std::optional<cluster::Launch> launch =
      cluster::read_launch([](const char* name) { return std::getenv(name); });
  if (!launch || (launch->size <= 1 && launch->rank == 0)) return;
  throw ConfigError(
      "{}, and penstock {} measures in one; start it once, or give --alone if every process "
      "measures alone",
      described(*launch), verb);
}

}  // namespace penstock
