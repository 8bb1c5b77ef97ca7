// SPDX-License-Identifier: Apache-2.0
#include "bench/serve/serve_processes.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "bench/run/child_process.h"
#include "bench/run/run_watch.h"
#include "dataflow/datasets/detect_source.h"
#include "dataflow/error.h"
#include "dataflow/options.h"
#include "feeders/image_decoding.h"
#include "feeders/image_source.h"

namespace penstock::serve {
namespace {

/// Time between two lines of progress.
constexpr Nanoseconds kPeriod = std::chrono::seconds(5);

/// Waits below this share of the time are not mentioned.
constexpr double kNoticed = 0.1;

double seconds(Nanoseconds time) { return std::chrono::duration<double>(time).count(); }

std::string_view slower_side(const ServeTotals& totals, bool paced) {
  const double consumers = totals.consumers_s / totals.seconds,
               feeder = totals.feeder_s / totals.seconds;
  if (paced && consumers < 0.5 && feeder < 0.5) return "--img-per-s is the limit";
  if (std::max(consumers, feeder) < kNoticed) return "neither side waits";
  return consumers > feeder ? "the consumers are the slower side"
                            : "this producer is the slower side; give it a faster source, or "
                              "more --processes";
}

}  // namespace

std::string to_line(const ServeTotals& totals) {
  return fmt::format("{} {} {} {} {} {}", totals.batches, totals.images, totals.bytes,
                     totals.seconds, totals.consumers_s, totals.feeder_s);
}

ServeTotals totals_from_line(std::string_view line) {
  std::istringstream text{std::string(line)};
  ServeTotals totals;
  text >> totals.batches >> totals.images >> totals.bytes >> totals.seconds >> totals.consumers_s >>
      totals.feeder_s;
  if (text) return totals;
  throw Error(fmt::format("a process reported '{}'; expected six numbers", line));
}

ServeTotals sum_of(std::span<const ServeTotals> processes) {
  ServeTotals sum;
  for (const ServeTotals& one : processes) {
    sum.batches += one.batches;
    sum.images += one.images;
    sum.bytes += one.bytes;
    sum.seconds = std::max(sum.seconds, one.seconds);
    sum.consumers_s += one.consumers_s / static_cast<double>(processes.size());
    sum.feeder_s += one.feeder_s / static_cast<double>(processes.size());
  }
  return sum;
}

std::string describe(const ServeTotals& totals, ServeWay way) {
  const double time = std::max(totals.seconds, 1e-9);
  const std::string sent = fmt::format(
      "{} {} batches, {} images, {:.1f} MB: {:.1f} img/s, {:.1f} MB/s in {:.1f} s",
      way.dropped ? "encoded and dropped" : "sent", totals.batches, totals.images,
      1e-6 * static_cast<double>(totals.bytes), static_cast<double>(totals.images) / time,
      1e-6 * static_cast<double>(totals.bytes) / time, totals.seconds);
  if (totals.batches == 0) return sent;
  if (way.dropped) {
    return fmt::format("{}; {:.0f} % of it waiting for batches to encode", sent,
                       100 * totals.feeder_s / time);
  }
  return fmt::format("{}; {:.0f} % of it waiting for consumers, {:.0f} % for batches to send: {}",
                     sent, 100 * totals.consumers_s / time, 100 * totals.feeder_s / time,
                     slower_side(totals, way.paced));
}

ServeProgress::ServeProgress(std::string name, Probe& probe, Clock& clock)
    : name_(std::move(name)),
      batches_(probe.counter("batches_sent")),
      images_(probe.counter("images_sent")),
      bytes_(probe.counter("bytes_sent")),
      consumers_ns_(probe.counter("send_wait_ns")),
      feeder_ns_(probe.counter("feed_wait_ns")),
      clock_(clock),
      start_(clock.now()) {}

void ServeProgress::run(const std::stop_token& stop) const {
  std::int64_t before = 0;
  for (Time due = start_ + kPeriod;; due += kPeriod) {
    clock_.sleep_until(due, stop);
    if (stop.stop_requested()) return;
    const std::int64_t images = images_.value();
    const std::string line =
        fmt::format("{}: {} batches, {:.1f} img/s{}\n", name_, batches_.value(),
                    static_cast<double>(images - before) / seconds(kPeriod),
                    images == before ? ", waiting for a consumer" : "");
    std::fputs(line.c_str(), stderr);
    before = images;
  }
}

ServeTotals ServeProgress::totals() const {
  return {.batches = batches_.value(),
          .images = images_.value(),
          .bytes = bytes_.value(),
          .seconds = seconds(clock_.now() - start_),
          .consumers_s = seconds(Nanoseconds(consumers_ns_.value())),
          .feeder_s = seconds(Nanoseconds(feeder_ns_.value()))};
}

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
  throw ConfigError(
      fmt::format("--shard is '{}'; expected RANK/RANKS, such as 0/4 to 3/4, of at most {}", text,
                  kMostProcesses));
}

void refuse_unfit(const ServeGroup& group, const ServeShare& share) {
  if (share.bind) {
    throw ConfigError(fmt::format(
        "--bind with --processes {}: one process alone can bind an endpoint; let the consumer bind "
        "(zmq-consume does unless bind=false) and leave --bind out, or leave --processes out",
        group.processes));
  }
  if (share.batches > 0 && share.batches < group.processes) {
    throw ConfigError(
        fmt::format("--num-batches is {} for {} processes; expected at least one for each; use "
                    "fewer --processes",
                    share.batches, group.processes));
  }
  if (std::int64_t{group.ranks} * group.processes > kMostProcesses) {
    throw ConfigError(fmt::format(
        "--shard of {} and --processes {} make {} producers; expected at "
        "most {}",
        group.ranks, group.processes, std::int64_t{group.ranks} * group.processes, kMostProcesses));
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
std::vector<std::string> command_of(const Invocation& invocation, const ServeGroup& group,
                                    const ServeShare& share, std::int32_t index) {
  std::vector<std::string> words{invocation.program, "serve"};
  words.insert(words.end(), invocation.arguments.begin(), invocation.arguments.end());
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
  std::vector<Flag> flags;
  flags.push_back({"processes", "",
                   "producer processes; they share the data, --num-batches and --img-per-s", "1",
                   false,
                   [&group](const std::string& text) {
                     const std::int64_t count = parse_integer(text, "--processes");
                     if (count < 1 || count > kMostProcesses) {
                       throw ConfigError(fmt::format("--processes is {}; expected 1 to {}", text,
                                                     kMostProcesses));
                     }
                     group.processes = static_cast<std::int32_t>(count);
                   },
                   "Serve"});
  flags.push_back(
      {"shard", "",
       "share of the data to serve: 0/4 to 3/4 are four shares; synthetic feeders get a seed each",
       "0/1", false, [&group](const std::string& text) { parse_shard(text, group); }, "Serve"});
  flags.push_back(
      {"report-fd", "", "file descriptor for a line of totals at the end; default: none", "", false,
       [&group](const std::string& text) { group.report_fd = parse_progress_fd(text); }, "Serve"});
  return flags;
}

int serve_processes(const Invocation& invocation, const ServeGroup& group,
                    const ServeShare& share) {
  refuse_unfit(group, share);
  std::stop_source end;
  const std::stop_callback forward(invocation.stop, [&end] { end.request_stop(); });
  std::mutex mutex;
  int code = 0;  // exit code of the first process that failed; under mutex
  std::deque<Producer> producers;
  for (std::int32_t index = 0; index < group.processes; ++index) {
    Producer& producer = producers.emplace_back();
    producer.name = fmt::format("process {}/{}", index, group.processes);
    start(producer, command_of(invocation, group, share, index));
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
        std::fputs(fmt::format("penstock serve: {} {}; ending the others\n", producer.name,
                               exit.signal != 0 ? fmt::format("was ended by signal {}", exit.signal)
                                                : fmt::format("exited with code {}", exit.code))
                       .c_str(),
                   stderr);
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
    std::fputs(fmt::format("penstock serve: {} of {} processes in all {}\n", totals.size(),
                           producers.size(),
                           describe(sum_of(totals), {share.img_per_s > 0, share.dropped}))
                   .c_str(),
               stderr);
  }
  return code;
}

namespace {

constexpr auto kDecodingOptions = joined_options(kJpegOptions, kDecodePoolOptions);

}  // namespace

std::unique_ptr<Source> make_served_source(const FeederEntry& feeder,
                                           const FeederContext& context) {
  if (!feeder.decodes_samples) {
    throw ConfigError("--encoded sends image files, and --fake-location " +
                      std::string(feeder.name) +
                      " makes pixels; expected queue, such as queue:source=tfrecord; or leave "
                      "--encoded out");
  }
  for (const OptionSpec& option : kDecodingOptions) {
    if (!context.options.given(option.name)) continue;
    const std::string name(option.name);
    throw ConfigError("--encoded sends image files as they are, and option '" + name +
                      "' is about decoding them; give it to the consumer, as "
                      "zmq-consume:encoded=true," +
                      name + "=" + context.options.text(name));
  }
  std::unique_ptr<Source> source = make_image_source(context);
  if (source->facts().kind == SampleKind::encoded) return source;
  throw ConfigError(
      "--encoded sends image files, and the source '" +
      datasets::source_text(context.options.text("source"), context.data.directory).name +
      "' gives pixels; expected one of encoded images, such as tfrecord; or leave "
      "--encoded out");
}

}  // namespace penstock::serve
