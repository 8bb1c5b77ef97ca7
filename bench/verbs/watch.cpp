// SPDX-License-Identifier: Apache-2.0
// penstock watch: runs a training in Python and reports how long its loops wait for batches.
#include <fmt/format.h>
#include <penstock_any_batch_py.h>
#include <penstock_feed_loader_py.h>
#include <penstock_launchers_json.h>
#include <penstock_sitecustomize_py.h>
#include <penstock_watching_py.h>
#include <penstock_worker_times_py.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/cli.h"
#include "bench/config/flags.h"
#include "bench/document/document.h"
#include "bench/document/terminal.h"
#include "bench/run/processes/child_process.h"
#include "bench/sweep/child_run.h"
#include "bench/sweep/private_folder.h"
#include "bench/verbs/user_command.h"
#include "bench/watch/watch_record.h"
#include "bench/watch/watch_summary.h"
#include "dataflow/clock.h"
#include "dataflow/error.h"
#include "dataflow/machine/output_file.h"
#include "feeders/python/counted.h"

namespace penstock {
namespace {

struct Arguments {
  std::string out, json, count;
  Nanoseconds every = std::chrono::minutes(1);
};

std::vector<Flag> watch_flags(Arguments& arguments) {
  const FlagGroup flag{"Watch"};
  return {
      flag.text("out", "folder for watch.json and report.md", arguments.out),
      flag.text("json", "file for the record: figures and raw steps of each rank", arguments.json),
      flag.text("count",
                "[UNIT=]KEY: what is counted in place of samples, as in run; a function of that "
                "name is one of the script",
                arguments.count),
      flag.time("every", "time between two reports on standard error, at least 1s", "60s",
                arguments.every)};
}

/// Where the record goes, checked before the command starts. Throws DataError.
std::vector<std::string> record_files(const Arguments& arguments) {
  std::vector<std::string> files;
  if (!arguments.json.empty()) files.push_back(arguments.json);
  if (!arguments.out.empty()) files.push_back(arguments.out + "/watch.json");
  for (const std::string& file : files) {
    const OutputFile writable(file, "name a file that can be written");
  }
  return files;
}

/// What the hook of the command reads, in a folder that lives as long as this object.
class Hook {
 public:
  explicit Hook(const python::Counted& counted) : counted_(counted) {
    const std::filesystem::path package = folder_.path() / "python" / "penstock_bench";
    std::filesystem::create_directories(package);
    std::filesystem::create_directories(steps());
    replace_file(package / "watching.py", kWatching);
    replace_file(package / "worker_times.py", kWorkerTimes);
    replace_file(package / "loader_batches.py", std::string(kAnyBatch).append(kFeedLoader));
    replace_file(package / "launchers.json", kLaunchers);
    replace_file(package.parent_path() / "sitecustomize.py", kSiteCustomize);
  }
  std::filesystem::path steps() const { return folder_.path() / "steps"; }

  /// `every`: time between two reports; the processes write twice as often.
  std::vector<std::string> environment(Nanoseconds every) const {
    const char* const given = std::getenv("PYTHONPATH");
    const std::string rest =
        given != nullptr && *given != 0 ? std::string(":") + given : std::string();
    const double seconds = to_seconds(every) / 2;
    std::vector<std::string> variables{
        fmt::format("PYTHONPATH={}{}", (folder_.path() / "python").native(), rest),
        fmt::format("PENSTOCK_WATCH_DIR={}", steps().native()),
        fmt::format("PENSTOCK_WATCH_EVERY_S={}", std::min(seconds, 30.0))};
    if (!counted_.key.empty()) {
      variables.push_back(fmt::format("PENSTOCK_WATCH_COUNT={}", counted_.key));
      variables.push_back(fmt::format("PENSTOCK_WATCH_UNIT={}", counted_.unit));
    }
    return variables;
  }

 private:
  const PrivateFolder folder_;
  const python::Counted counted_;
};

/// Reads steps and prints reports. Thread-safety: one thread at a time.
class Reporter {
 public:
  Reporter(const Hook& hook, std::vector<std::string> command)
      : files_(hook.steps()),
        record_{.command = std::move(command), .environment = read_environment()} {}

  /// Never throws: the training is more important than a report.
  void report(std::optional<int> exit_code) noexcept try {
    files_.read();
    files_.put_into(record_);
    record_.exit_code = exit_code;
    record_.seconds = to_seconds(clock_.now() - begin_);
    std::ostringstream text;
    const int width = document::style_of(STDERR_FILENO).width;
    document::write_text(watch::document_of(record_), text, static_cast<std::size_t>(width));
    fmt::print(stderr, "\n{}", text.str());
  } catch (const std::exception& error) {
    fmt::print(stderr, "penstock watch: no report: {}\n", error.what());
  }

  /// Looks at workers and prints reports until a stop is requested.
  void run(const std::stop_token& stop, Nanoseconds every) {
    constexpr int kPause = 20;  // times the duration of a look: looking takes 5 % of a core at most
    constexpr Nanoseconds kShortest = std::chrono::milliseconds(5);
    for (Time next = begin_ + every, look = begin_;;) {
      clock_.sleep_until(std::min(next, look), stop);
      if (stop.stop_requested()) return;
      const Time now = clock_.now();
      files_.look_at_workers();
      look = now + kPause * std::max(kShortest, clock_.now() - now);
      if (now < next) continue;
      report(std::nullopt);
      next = std::max(next + every, now);  // after a suspension, one report is enough
    }
  }
  const watch::WatchRecord& record() const noexcept { return record_; }

 private:
  SteadyClock clock_;
  const Time begin_ = clock_.now();
  watch::StepFiles files_;
  watch::WatchRecord record_;
};

void write_record(const watch::WatchRecord& record, const Arguments& arguments,
                  std::span<const std::string> files) {
  using Json = nlohmann::ordered_json;
  const std::string text =
      to_json(record).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  for (const std::string& file : files) replace_file(file, text);
  if (arguments.out.empty()) return;
  std::ostringstream report;
  document::write_markdown(watch::document_of(record), report);
  replace_file(arguments.out + "/report.md", report.str());
}

ChildExit run_command(const std::vector<std::string>& command, const Hook& hook, Nanoseconds every,
                      Reporter& reporter, const Invocation& invocation) {
  UserCommand started(invocation);
  ChildProcess& child =
      started.start({.arguments = command, .environment = hook.environment(every)});
  const std::jthread reports([&](const std::stop_token& stop) { reporter.run(stop, every); });
  return child.wait(invocation.stop);
}

int run(const Invocation& invocation) {
  Arguments arguments;
  const SplitArguments words = split_at_dashes(invocation.arguments);
  const auto asks_for_help = [](const std::string& word) {
    return word == "-h" || word.ends_with("-help") || word.ends_with("-help-all");
  };
  if (!words.command && std::ranges::none_of(words.own, asks_for_help)) {
    throw ConfigError(
        "watch needs `--` before the command to start; expected `penstock watch -- python3 "
        "train.py`");
  }
  if (!parse_flags(
          {.verb = "watch",
           .summary =
               "Runs an unchanged training in Python, and reports how long each rank waits for its "
               "batches, why, and what would help: in loops over PyTorch's DataLoader or over "
               "penstock_bench.watching.watch.",
           .examples = "watch -- python3 train.py --epochs 3\n"
                       "watch --json out/watch.json -- torchrun --nproc-per-node 4 train.py",
           .arguments = "-- COMMAND ..."},
          watch_flags(arguments), words.own)) {
    return 0;
  }
  if (arguments.every < std::chrono::seconds(1)) {
    throw ConfigError("--every is less than a second; expected 1s or more");
  }
  const std::vector<std::string> command = words.command.value_or(std::vector<std::string>());
  expect_command("watch", command);
  std::optional<FolderLock> lock;
  if (!arguments.out.empty()) lock.emplace(lock_results(arguments.out));
  const std::vector<std::string> files = record_files(arguments);
  const Hook hook(arguments.count.empty() ? python::Counted{}
                                          : python::parse_counted(arguments.count, "--count"));
  Reporter reporter(hook, command);
  const ChildExit exit = run_command(command, hook, arguments.every, reporter, invocation);
  const int code = exit_code_of(exit);
  reporter.report(code);
  write_record(reporter.record(), arguments, files);
  return code;
}

}  // namespace

extern constinit const VerbEntry watch_verb{
    .name = "watch",
    .summary = "run a training in Python and report how long it waits for batches",
    .run = run,
};

}  // namespace penstock
