// SPDX-License-Identifier: Apache-2.0
#include "bench/serve/serve_processes.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "bench/run/observe/run_watch.h"
#include "bench/run/processes/child_process.h"
#include "dataflow/error.h"
#include "dataflow/options.h"

namespace penstock::serve {
namespace {

constexpr std::int64_t kMostProcesses = 1024;
/// Processes end when they are done or stopped, so their timeout is never reached.
constexpr Nanoseconds kNever = std::chrono::hours(24 * 365 * 10);
/// The exit code for a process that a signal ended.
constexpr int kLost = 6;

/// Parses "1/4": the second of four.
void parse_shard(const std::string& text, ServeGroup& group) {
  const std::size_t slash = text.find('/');
  if (slash != std::string::npos) {
    const std::int64_t rank = parse_integer(text.substr(0, slash), "--shard");
    const std::int64_t ranks = parse_integer(text.substr(slash + 1), "--shard");
    if (ranks >= 1 && ranks <= kMostProcesses && rank >= 0 && rank < ranks) {
      group.rank = static_cast<std::int32_t>(rank);
      group.ranks = static_cast<std::int32_t>(ranks);
      return;
    }
  }
  throw ConfigError("--shard is '{}'; expected RANK/RANKS, such as 0/4 to 3/4, of at most {}", text,
                    kMostProcesses);
}

void refuse_unfit(const ServeGroup& group, const ServeShare& share) {
  if (share.bind) {
    throw ConfigError(
        "--bind with --processes {}: one process alone can bind an endpoint; let the consumer bind "
        "(zmq-consume does unless bind=false) and leave --bind out, or leave --processes out",
        group.processes);
  }
  if (share.batches > 0 && share.batches < group.processes) {
    throw ConfigError(
        "--num-batches is {} for {} processes; expected at least one for each; use fewer "
        "--processes",
        share.batches, group.processes);
  }
  if (std::int64_t{group.ranks} * group.processes > kMostProcesses) {
    throw ConfigError("--shard of {} and --processes {} make {} producers; expected at most {}",
                      group.ranks, group.processes, std::int64_t{group.ranks} * group.processes,
                      kMostProcesses);
  }
}

/// Gives the flag one value and removes earlier ones.
void set_flag(std::vector<std::string>& words, std::string_view name, const std::string& value) {
  for (auto word = words.begin(); word != words.end();) {
    if (!is_typed(name, std::span(&*word, 1))) {
      ++word;
      continue;
    }
    const bool is_whole = word->find('=') != std::string::npos;
    word = words.erase(word, std::next(word, is_whole || std::next(word) == words.end() ? 1 : 2));
  }
  words.push_back(fmt::format("--{}={}", name, value));
}

/// The command of process number `index`.
std::vector<std::string> command_of(std::vector<std::string> words, const ServeGroup& group,
                                    const ServeShare& share, std::int32_t index) {
  set_flag(words, "processes", "1");
  set_flag(
      words, "shard",
      fmt::format("{}/{}", group.rank * group.processes + index, group.ranks * group.processes));
  if (share.batches > 0) {
    const std::int64_t more = index < share.batches % group.processes ? 1 : 0;
    set_flag(words, "num-batches", std::to_string(share.batches / group.processes + more));
  }
  if (share.img_per_s > 0) {
    set_flag(words, "img-per-s", fmt::format("{}", share.img_per_s / group.processes));
  }
  if (share.feeder_threads > 0) {
    set_flag(words, "feeder-threads", std::to_string(share.feeder_threads));
  }
  return words;
}

/// A process and its final report.
struct Producer {
  std::string name;
  std::optional<ServeTotals> totals;
  std::unique_ptr<ChildProcess> child;
};

void start(Producer& producer, std::vector<std::string> words) {
  producer.child = std::make_unique<ChildProcess>(ChildCommand{
      .arguments = std::move(words),
      .timeout = kNever,
      .show_stderr = true,
      .pipe_flag = "--report-fd=",
      .on_line = [&producer](std::string_view line) { producer.totals = totals_from_line(line); },
  });
}

}  // namespace

std::string ServeGroup::name() const {
  return ranks == 1 ? "penstock serve" : fmt::format("penstock serve {}/{}", rank, ranks);
}

void ServeGroup::report(const ServeTotals& totals) const {
  if (report_fd < 0) return;
  const std::string line = to_line(totals) + "\n";
  static_cast<void>(!write(report_fd, line.data(), line.size()));
}

std::vector<Flag> serve_group_flags(ServeGroup& group) {
  const FlagGroup flag{"Serve"};
  return {
      flag.count("processes",
                 "producer processes; they share the data, --num-batches and --img-per-s",
                 group.processes, 1, kMostProcesses),
      flag("shard",
           "share of the data to serve: 0/4 to 3/4 are four shares; synthetic feeders get a seed "
           "each",
           "0/1", [&group](const std::string& text) { parse_shard(text, group); }),
      flag("report_fd", "file descriptor for a line of totals at the end; default: none", "",
           [&group](const std::string& text) { group.report_fd = parse_progress_fd(text); })};
}

int serve_processes(const std::vector<std::string>& command, const ServeGroup& group,
                    const ServeShare& share, const std::stop_token& stop) {
  refuse_unfit(group, share);
  std::stop_source end;
  const std::stop_callback forward(stop, [&end] { end.request_stop(); });
  std::mutex mutex;
  int code = 0;  // exit code of the first process that failed; under mutex
  std::deque<Producer> producers;
  for (std::int32_t index = 0; index < group.processes; ++index) {
    Producer& producer = producers.emplace_back();
    producer.name = fmt::format("process {}/{}", index, group.processes);
    start(producer, command_of(command, group, share, index));
  }
  {
    std::vector<std::jthread> waiting;
    const auto follow = [&](Producer& producer) {
      waiting.emplace_back([&] {
        const ChildExit& exit = producer.child->wait(end.get_token());
        if (exit.code == 0 && exit.signal == 0) return;
        const std::lock_guard lock(mutex);
        if (end.stop_requested()) return;
        code = exit.signal != 0 ? kLost : exit.code;
        fmt::print(stderr, "penstock serve: {} {}; ending the others\n", producer.name,
                   exit.signal != 0 ? fmt::format("was ended by signal {}", exit.signal)
                                    : fmt::format("exited with code {}", exit.code));
        end.request_stop();
      });
    };
    try {
      for (Producer& producer : producers) follow(producer);
    } catch (const std::system_error&) {
      end.request_stop();
      throw;
    }
  }
  std::vector<ServeTotals> totals;
  for (const Producer& producer : producers) {
    if (producer.totals) totals.push_back(*producer.totals);
  }
  if (!totals.empty()) {
    group.report(sum_of(totals));
    fmt::print(stderr, "penstock serve: {} of {} processes in all {}\n", totals.size(),
               producers.size(),
               describe(sum_of(totals), {share.img_per_s > 0, share.dropped, share.unit}));
  }
  return code;
}

}  // namespace penstock::serve
