// SPDX-License-Identifier: Apache-2.0
#include "bench/scaling/scale_runner.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "bench/config/flags.h"
#include "bench/run/processes/child_process.h"
#include "bench/scaling/launch/run_ranks.h"
#include "bench/sweep/child_run.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/options.h"

namespace penstock::scaling {

namespace {

/// Finds the line with the reason in the output: the program's, otherwise the launcher's.
std::string reason_of(const ChildExit& exit, const RunResult& result) {
  if (exit.cause == ChildExit::Cause::timed_out) return "it did not end in time";
  constexpr std::string_view kOurs = "penstock: ", kLauncher = "noticed that";
  std::string ours, launcher, other;
  std::istringstream lines(exit.last_words);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(kOurs)) ours = line.substr(kOurs.size());
    if (line.find(kLauncher) != std::string::npos) launcher = line;
    const bool of_a_stack = line.find(")[0x") != std::string::npos;
    const bool drawn = line.empty() || line.front() == '-' || line.front() == '[' || of_a_stack;
    if (!drawn && other.empty()) other = line;
  }
  for (const std::string& said : {ours, launcher, result.reason, other}) {
    if (!said.empty() && said.find('\n') == std::string::npos) return said;
  }
  return "it said nothing";
}

int code_of(const ChildExit& exit) {
  constexpr int kTimedOut = 5;
  if (exit.cause == ChildExit::Cause::timed_out) return kTimedOut;
  return exit.signal != 0 ? 128 + exit.signal : exit.code;
}

/// mpirun's words for a rung's ranks.
std::vector<std::string> launch_words(const ScalePlan& plan, const Rung& rung) {
  return mpirun_words({.ranks = rung.ranks,
                       .hosts = rung.hosts,
                       .agent = plan.agent,
                       .as_root = plan.as_root,
                       .shared_machine = plan.shared_machine});
}

/// The command of each rank.
std::vector<std::string> rank_words(const ScalePlan& plan, const Rung& rung) {
  std::vector<std::string> words{plan.program, "run", "--json"};
  RunConfig config = plan.config;
  config.num_processes = rung.ranks;
  for (std::string& flag : to_flags(config)) words.push_back(std::move(flag));
  return words;
}

/// Runs a rung once. Returns false if it was stopped.
bool run_rung(const ScalePlan& plan, Rung& rung, std::int32_t repetition,
              const std::stop_token& stop) {
  RunConfig config = plan.config;
  config.num_processes = rung.ranks;
  const ChildExit exit = run_ranks({.arguments = launch_words(plan, rung),
                                    .timeout = plan.run_timeout,
                                    .show_stderr = plan.verbose},
                                   rank_words(plan, rung), stop);
  if (exit.cause == ChildExit::Cause::stopped) return false;
  RunResult result = result_of(exit, config);
  const bool good = result.status == Status::ok || result.status == Status::draining;
  if (good && exit.code == 0 && result.img_per_s > 0) {
    rung.runs.push_back(std::move(result));
  } else {
    rung.failures.push_back({repetition, code_of(exit), reason_of(exit, result), exit.last_words});
  }
  return true;
}

constexpr std::int64_t kMostRanks = 65536;

struct Letter {
  std::string_view letter, flag;
};
constexpr Letter kLetters[] = {{"-m", "--model"},
                               {"-g", "--gpu-per-machine"},
                               {"-b", "--batch-size"},
                               {"-r", "--remote-dir"},
                               {"-x", "--max-gpu"}};

}  // namespace

std::vector<Rung> make_rungs(const ScalePlan& plan) {
  std::vector<Rung> rungs;
  for (const std::int32_t ranks : plan.ranks) {
    Rung rung;
    rung.ranks = ranks;
    if (!plan.hosts.empty()) rung.hosts = place_ranks(plan.hosts, ranks, plan.per_host);
    std::vector<std::string> words = launch_words(plan, rung);
    for (std::string& word : rank_words(plan, rung)) words.push_back(std::move(word));
    for (std::string& word : words) word = shell_word(word);
    rung.command = join(words, " ");
    rungs.push_back(std::move(rung));
  }
  return rungs;
}

void climb(const ScalePlan& plan, ScaleResult& result, ScaleListener& listener,
           const std::stop_token& stop) {
  listener.result_changed(result);
  for (std::int32_t repetition = 0; repetition < plan.repetitions; ++repetition) {
    for (Rung& rung : result.rungs) {
      if (!rung.failures.empty()) continue;
      listener.run_begins(rung, repetition);
      const bool ran = run_rung(plan, rung, repetition, stop);
      listener.run_ended(rung, !ran);
      listener.result_changed(result);
      if (stop.stop_requested()) {
        result.notes.emplace_back("stopped: this is what was measured by then");
        listener.result_changed(result);
        return;
      }
    }
  }
}

std::vector<std::int32_t> doublings(std::int32_t most) {
  std::vector<std::int32_t> ranks;
  for (std::int64_t count = 1; count <= most; count *= 2) {
    ranks.push_back(static_cast<std::int32_t>(count));
  }
  return ranks;
}

std::vector<std::int32_t> parse_ranks(std::string_view text) {
  std::vector<std::int32_t> ranks;
  std::istringstream pieces{std::string(text)};
  for (std::string piece; std::getline(pieces, piece, ',');) {
    const std::int64_t count = parse_integer(piece, "--ranks");
    if (count < 1 || count > kMostRanks) {
      throw ConfigError("--ranks has {}; expected whole numbers from 1 to {}, such as 1,2,4", piece,
                        kMostRanks);
    }
    ranks.push_back(static_cast<std::int32_t>(count));
  }
  std::ranges::sort(ranks);
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  if (!ranks.empty()) return ranks;
  throw ConfigError("--ranks names no number; expected a list such as 1,2,4");
}

std::vector<std::string> spell_out(const std::vector<std::string>& arguments) {
  std::vector<std::string> result;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const bool has_word = i + 1 < arguments.size() && !arguments[i + 1].starts_with("-");
    if (argument == "-h" && has_word) {  // alone, -h asks for help
      result.emplace_back("--hosts");
      continue;
    }
    const auto* const letter = std::ranges::find(kLetters, argument, &Letter::letter);
    result.push_back(letter == std::end(kLetters) ? argument : std::string(letter->flag));
  }
  return result;
}

}  // namespace penstock::scaling
