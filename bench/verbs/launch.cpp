// SPDX-License-Identifier: Apache-2.0
// penstock launch: starts this program as several ranks through mpirun, with the necessary flags.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "bench/cli.h"
#include "bench/config/flags.h"
#include "bench/record/machine.h"
#include "bench/scaling/launch/hosts.h"
#include "bench/scaling/launch/mpirun.h"
#include "bench/scaling/launch/run_ranks.h"
#include "bench/verbs/user_command.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/options.h"

namespace penstock {
namespace {

constexpr std::int64_t kMostRanks = 65536;
constexpr Nanoseconds kForEver = std::chrono::hours(24 * 365);
/// Verbs that several ranks can run together.
constexpr std::array<std::string_view, 2> kVerbs{"run", "allreduce"};

struct Arguments {
  std::int32_t ranks = 0;  ///< 0: one rank per slot of the hosts
  std::string hosts, hostfile;
  std::string agent{scaling::kPlainSsh};
  Nanoseconds grace = std::chrono::seconds(1);
  bool print = false;
};

/// The first word for the ranks: after "--", or the first word that is not a flag.
std::size_t begin_of_ranks(std::span<const std::string> arguments) {
  std::size_t i = 0;
  while (i < arguments.size() && arguments[i].starts_with("-") && arguments[i] != "--") {
    const std::string& word = arguments[i];
    const bool alone = word.find('=') != std::string::npos || word == "-h" ||
                       word.ends_with("-help") || word.ends_with("print");
    i += alone ? 1 : 2;
  }
  return std::min(i, arguments.size());
}

std::vector<Flag> launch_flags(Arguments& arguments) {
  const FlagGroup flag{"Launch"};
  const auto set_ranks = [&](const std::string& text) {
    const std::int64_t ranks = parse_integer(text, "-np");
    if (ranks < 1 || ranks > kMostRanks) {
      throw ConfigError("-np is {}; expected a whole number from 1 to {}", text, kMostRanks);
    }
    arguments.ranks = static_cast<std::int32_t>(ranks);
  };
  const auto set_grace = [&](const std::string& text) {
    arguments.grace = parse_duration(text, "--grace");
    if (arguments.grace >= std::chrono::seconds(1)) return;
    throw ConfigError("--grace is {}; expected a second or more", text);
  };
  return {flag("np", "ranks to start; default: one per slot of --hosts", "", set_ranks, "n_ranks"),
          flag.text("hosts",
                    "-H: machines and their slots, such as node1:2,node2:2; default: this machine",
                    arguments.hosts, "host"),
          flag.text("hostfile", "host file of mpirun, with lines NAME slots=N", arguments.hostfile,
                    "machinefile"),
          flag.text("ssh", "command that reaches other machines", arguments.agent),
          flag("grace", "time that ranks get to save results when they are stopped, at least 1s",
               "1s", set_grace),
          flag.boolean("print", "print the mpirun command without starting it", arguments.print)};
}

/// The command of each rank. Throws ConfigError for verbs that ranks cannot run.
std::vector<std::string> rank_words(const Invocation& invocation, std::vector<std::string> words) {
  if (words.empty()) {
    throw ConfigError(
        "launch has nothing to start; expected `penstock launch -np 4 -- run ...` with the flags "
        "of "
        "`penstock run`");
  }
  const std::string& verb = words.front();
  if (std::ranges::count(kVerbs, verb) == 0) {
    throw ConfigError(
        "launch cannot start '{}': ranks do {} together; expected `penstock launch -np 4 -- run "
        "...`",
        verb, fmt::join(kVerbs, " or "));
  }
  const auto typed = [&](std::string_view name) { return is_typed(name, words); };
  const bool says_update =
      typed("variable_update") || typed("kungfu") || typed("kf_optimizer") || typed("like");
  if (verb == "run" && !says_update) words.emplace_back("--variable-update=horovod");
  words.insert(words.begin(), invocation.program);
  return words;
}

scaling::MpirunPlan plan_of(const Arguments& arguments, const std::stop_token& stop) {
  scaling::MpirunPlan plan{.ranks = arguments.ranks,
                           .agent = arguments.agent,
                           .grace = arguments.grace,
                           .as_root = geteuid() == 0};
  if (!arguments.hosts.empty() && !arguments.hostfile.empty()) {
    throw ConfigError("--hosts and --hostfile exclude each other; keep one");
  }
  std::vector<scaling::Host> hosts;
  if (!arguments.hosts.empty()) hosts = scaling::parse_host_list(arguments.hosts);
  if (!arguments.hostfile.empty()) hosts = scaling::read_host_file(arguments.hostfile);
  if (hosts.empty()) {
    if (plan.ranks > 0) return plan;
    throw ConfigError("how many ranks? Expected -np N, such as `penstock launch -np 4 -- run ...`");
  }
  if (plan.ranks == 0) {
    for (const scaling::Host& host : hosts) plan.ranks += std::max(host.slots, 1);
  }
  plan.hosts = scaling::place_ranks(hosts, plan.ranks, 1);
  scaling::expect_known(plan.hosts, arguments.agent);
  if (arguments.print) return plan;
  plan.shared_machine =
      scaling::shared_machine(scaling::names_of_machines(plan.hosts, arguments.agent, stop));
  return plan;
}

/// Not through stdio, whose buffer would delay lines.
void pass_on(std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(STDOUT_FILENO, text.data(), text.size());
    if (count < 0 && errno != EINTR) return;  // the reader has gone
    if (count > 0) text.remove_prefix(static_cast<std::size_t>(count));
  }
}

int run(const Invocation& invocation) {
  Arguments arguments;
  const std::span<const std::string> all = invocation.arguments;
  const std::size_t begin = begin_of_ranks(all);
  std::vector<std::string> own(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(begin));
  std::replace(own.begin(), own.end(), std::string("-H"), std::string("--hosts"));
  if (!parse_flags(
          {.verb = "launch",
           .summary = "Starts `run` or `allreduce` as several ranks, through Open MPI's mpirun. "
                      "Output and exit code are those of the run.",
           .examples = "launch -np 4 -- run --feeder queue --data-dir my/images\n"
                       "launch --hosts node1:2,node2:2 -- run --model resnet50\n"
                       "launch -np 2 --print -- run --feeder host",
           .arguments = "-- VERB ..."},
          launch_flags(arguments), own)) {
    return 0;
  }
  std::span<const std::string> rest = all.subspan(begin);
  if (!rest.empty() && rest.front() == "--") rest = rest.subspan(1);
  scaling::refuse_nested_launch("launch");
  const std::vector<std::string> program = rank_words(invocation, {rest.begin(), rest.end()});
  const scaling::MpirunPlan plan = plan_of(arguments, invocation.stop);
  std::vector<std::string> words = scaling::mpirun_words(plan);
  std::vector<std::string> quoted;
  for (const std::string& word : words) quoted.push_back(shell_word(word));
  for (const std::string& word : program) quoted.push_back(shell_word(word));
  const std::string command = join(quoted, " ");
  if (arguments.print) {
    fmt::print("{}\n", command);
    return 0;
  }
  scaling::expect_mpirun();
  fmt::print(stderr, "penstock launch: {}\n", command);
  const std::int32_t cores = usable_cores();
  if (plan.hosts.empty() && plan.ranks > cores) {
    fmt::print(stderr, "penstock launch: {} ranks share {} usable cores and take turns on them\n",
               plan.ranks, cores);
  }
  const ChildExit exit = scaling::run_ranks({.arguments = std::move(words),
                                             .timeout = kForEver,
                                             .grace = arguments.grace + std::chrono::seconds(5),
                                             .show_stderr = true,
                                             .on_output = pass_on},
                                            program, invocation.stop);
  return exit_code_of(exit);
}

}  // namespace

extern constinit const VerbEntry launch_verb{
    .name = "launch",
    .summary = "start several ranks of a run through mpirun",
    .run = run,
};

}  // namespace penstock
