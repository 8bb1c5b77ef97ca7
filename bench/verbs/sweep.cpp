// SPDX-License-Identifier: Apache-2.0
// penstock sweep: runs every combination of lists, each run a child process, repeated in rounds.
// Prints a table, and writes files to a folder. Without flags it measures what feeding costs two
// emulated accelerators, for every feeder.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/cli.h"
#include "bench/config/flags.h"
#include "bench/config/run_flags.h"
#include "bench/config/training_loop.h"
#include "bench/config/unused_flags.h"
#include "bench/dataset/default_dataset.h"
#include "bench/document/terminal.h"
#include "bench/record/compare.h"
#include "bench/record/report_text.h"
#include "bench/record/saved_results.h"
#include "bench/report/report.h"
#include "bench/run/observe/progress.h"
#include "bench/run/observe/progress_line.h"
#include "bench/run/processes/launch_flags.h"
#include "bench/sweep/child_run.h"
#include "bench/sweep/result_folder.h"
#include "bench/sweep/sweep.h"
#include "bench/sweep/sweep_runner.h"
#include "bench/verbs/device_choice.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"

namespace penstock {
namespace {

std::string outcome(const RunResult& result) {
  std::string text = fmt::format("{:.1f} {}", result.img_per_s, rate_unit(result.config));
  if (result.status == Status::ok) return text;
  if (result.img_per_s == 0) text.clear();
  return fmt::format("{}{}{}: {}", text, text.empty() ? "" : ", ", to_string(result.status),
                     result.reason);
}

class SweepProgress final : public SweepListener {
 public:
  /// `single_line`: standard error is a terminal, and nothing else writes to it.
  SweepProgress(const ResultFolder& folder, bool single_line)
      : folder_(folder), line_(stderr, single_line) {}

  void rests(double busy_percent) override {
    const std::string text = fmt::format(
        "waiting until the machine is at rest: other programs use {:.0f} % of its processors",
        busy_percent);
    if (!std::exchange(rests_, true) || line_.single()) line_.end(text, false);
  }
  void run_begins(const SweepMoment& moment) override {
    where_ = fmt::format("[{}/{}] round {}: {}", moment.run + 1, moment.runs, moment.round + 1,
                         label_of(*sweep_, moment.row));
    // Before the first run has ended, only the budget is known.
    line_.begin(where_, moment.run == 0 ? "at most " : "about ", moment.left_s);
  }
  void run_ended(const SweepMoment& moment, const RunResult& result) override {
    line_.end(
        fmt::format("{}: {}; about {} left", where_, outcome(result), duration_text(moment.left_s)),
        result.status != Status::ok);
  }
  void results_changed(const SweepResult& sweep) override {
    sweep_ = &sweep;
    saver_.save([&] { folder_.write(sweep); },
                [this](const std::string& text) { line_.print(text); });
  }
  /// Shows the progress of the current run, a few times a second. Not while another member is
  /// called.
  void running(const Progress& progress) { line_.running(progress); }

  /// Removes the changing line after the last run.
  void finish() { line_.finish(); }

  /// True if all results so far are on disk.
  bool saved() const noexcept { return saver_.saved(); }

 private:
  const ResultFolder& folder_;
  RunLine line_;
  const SweepResult* sweep_ = nullptr;
  std::string where_;  // the current run
  ResultSaver saver_;
  bool rests_ = false;
};

/// The shortest timeout of a configuration's first run, for small budgets.
constexpr Nanoseconds kMinRunTimeout = std::chrono::minutes(1);
constexpr std::string_view kDefaultFeeders = "gpu,host,cpu,queue,queue:engine=libjpeg,zmq-consume";

struct Arguments {
  Sweep axes;
  SweepPlan plan;
  std::string out = "out";
  Nanoseconds run_timeout{};
  bool verbose = false;
  bool alone = false;
  std::string baseline;  ///< earlier results; empty: none
  CompareOptions compare;
};

constexpr FlagGroup flag{"Sweep"};

/// The flags of `run`, each taking a list, and the flags of the sweep.
std::vector<Flag> sweep_flags(RunConfig& base, Arguments& arguments) {
  std::vector<Flag> flags = run_flags(base);
  for (Flag& run_flag : flags) {
    const bool is_key = std::ranges::count(config_keys(), run_flag.name, &ConfigKey::name) > 0;
    if (!is_key) continue;  // all runs start from the same value
    run_flag.set = [&arguments, name = run_flag.name](const std::string& text) {
      arguments.axes.set(name, text);
    };
    if (run_flag.name == "fake_location") run_flag.fallback = kDefaultFeeders;
  }
  return join_flags(
      std::move(flags),
      std::vector<Flag>{
          flag.count("repetitions", "runs of each configuration", arguments.plan.repetitions, 1,
                     10'000),
          flag.time("time_budget",
                    "total time, such as 90s or 5min; no run starts that would probably end later",
                    "5min", arguments.plan.time_budget),
          flag.time("rest", "longest wait for an idle machine before the first round, such as 30s",
                    "0s", arguments.plan.rest),
          flag.boolean("repeat_outlier",
                       "repeat a round once if it is far from the others; results.json keeps both",
                       arguments.plan.repeat_outlier),
          flag.time("run_timeout", "how long a run may take; default: --time-budget, at least 1min",
                    "", arguments.run_timeout),
          flag.text("out", "folder for results.json, results.csv, results.md and report.html",
                    arguments.out),
          flag.text("baseline", "earlier results to compare with; a regression exits with 1",
                    arguments.baseline),
          flag("margin", "smallest change that matters, in percent, with --baseline", "1",
               [&](const std::string& text) { arguments.compare.margin = parse_margin(text); }),
          flag("allow", "settings that may differ from --baseline, such as data_dir", "",
               [&](const std::string& text) { arguments.compare.allowed = parse_allowed(text); }),
          flag.boolean("verbose", "print the output of the runs", arguments.verbose),
          alone_flag(arguments.alone)});
}

int exit_code(const SweepResult& sweep, bool saved) {
  if (!saved || has_failures(sweep)) return 6;
  return std::ranges::count(sweep.rows, Status::skipped, &Row::status) < std::ssize(sweep.rows) ? 0
                                                                                                : 3;
}

/// The program as typed in this folder: its path below the folder, otherwise its name.
std::string program_word(const std::filesystem::path& program) {
  const std::filesystem::path below = program.lexically_proximate(std::filesystem::current_path());
  if (below.empty() || below.is_absolute() || *below.begin() == "..") {
    return program.filename().native();
  }
  return shell_word(below.has_parent_path() ? below.native() : "./" + below.native());
}

/// The commands that a new user tries next, about the same data.
std::string next_commands(const std::string& program, const std::string& data) {
  std::vector<std::pair<std::string, std::string_view>> commands;
  if (data.empty()) {
    commands.emplace_back("sweep --data-dir FOLDER",
                          "your own images: class folders, TFRecord, ...");
  }
  commands.emplace_back("isolate --loader FILE.py:FUNCTION",
                        "your own Python loader, such as a DataLoader");
  commands.emplace_back("isolate --fake-location zmq-consume:endpoint=tcp://HOST:PORT",
                        "your own producer, over ZeroMQ");
  commands.emplace_back(
      "isolate --fake-location queue" + (data.empty() ? "" : " --data-dir " + shell_word(data)),
      "which stage holds it up, and what would help");
  std::string text = "\nNext:\n";
  for (const auto& [command, purpose] : commands) {
    text += fmt::format("  {} {}\n      {}\n", program, command, purpose);
  }
  return text;
}

int sweep(Arguments arguments, const Invocation& invocation) {
  const bool given = arguments.run_timeout > Nanoseconds{};
  ChildRunOptions options{.program = invocation.program,
                          .timeout = given ? arguments.run_timeout
                                           : std::max(arguments.plan.time_budget, kMinRunTimeout),
                          .show_stderr = arguments.verbose};
  std::optional<SweepResult> baseline;  // read before measuring, and before files are replaced
  if (!arguments.baseline.empty()) baseline = read_saved_results(arguments.baseline);
  SteadyClock clock;
  const std::vector<RunConfig> configurations = arguments.plan.configurations;
  SweepRunner runner(std::move(arguments.plan), runs_in_children(options), clock);
  const ResultFolder folder(arguments.out);
  for (const RunConfig& config : configurations) {  // before the first run, once for all
    if (!unavailable_reason(config).empty()) continue;
    const std::string name = parse_component(config.fake_location).name;
    dataset::ensure_data_of(config, find_entry(feeder_table(), name), invocation.stop);
  }
  SweepProgress progress(folder, document::is_terminal(STDERR_FILENO) && !arguments.verbose);
  options.on_progress = [&](const Progress& now) { progress.running(now); };
  const SweepResult& result = runner.run(progress, invocation.stop);
  progress.finish();
  find_entry(report::report_table(), "table")
      .write(result, document::style_of(STDOUT_FILENO), std::cout);
  fmt::print("\n{}{}", progress.saved() ? "The page: " : "",
             files_line(folder, {"report.html"}, progress.saved()));
  if (progress.saved()) {
    fmt::print("Every step time and the machine: {}",
               files_line(folder, {"results.json", "results.csv"}, true));
  }
  if (!is_typed("fake_location", invocation.arguments)) {
    const bool own = is_typed("data_dir", invocation.arguments);
    fmt::print("{}", next_commands(program_word(invocation.program),
                                   own ? configurations.front().data_dir : ""));
  }
  const int code = exit_code(result, progress.saved());
  if (!baseline) return code;
  const Comparison comparison = compare(*baseline, result, arguments.compare);
  fmt::print("\n");
  std::fflush(stdout);
  write_comparison(comparison, arguments.baseline, (folder.path() / "results.json").native(),
                   "text", std::cout);
  return code != 0 ? code : exit_code_of(comparison);
}

int run(const Invocation& invocation) {
  RunConfig base;
  base.device = kAutoDevice;
  base.extend_window = true;  // so that windows are long enough for input costs
  Arguments arguments;
  arguments.plan.repeat_outlier = true;
  apply_like_of(base, invocation.arguments);
  arguments.axes.set("fake_location", kDefaultFeeders);
  if (!parse_flags(
          {.verb = "sweep",
           .summary = "Measures every combination of values, and what input costs in each. Every "
                      "flag of a run takes a list.",
           .common = "fake-location model device data-dir batch-size num-gpus num-batches "
                     "repetitions time-budget out baseline verbose",
           .examples = "sweep\n"
                       "sweep --feeder gpu,queue --data-dir my/images --batch-size 32,64\n"
                       "sweep --config sweep.toml --out out/today --baseline out/yesterday"},
          sweep_flags(base, arguments), invocation.arguments)) {
    return 0;
  }
  expect_one_process("sweep", arguments.alone);
  arguments.plan.configurations = arguments.axes.expand(base);
  const std::string chosen = choose_devices(arguments.plan.configurations, invocation.arguments);
  if (!chosen.empty()) fmt::print(stderr, "penstock: {}\n", chosen);
  say_unused_flags(arguments.plan.configurations, invocation.arguments);
  state_batches(arguments.plan.configurations, invocation.stop);
  arguments.plan.seed = arguments.plan.configurations.front().seed;
  arguments.plan.command = command_text("sweep", invocation.arguments);
  return sweep(std::move(arguments), invocation);
}

}  // namespace

extern constinit const VerbEntry sweep_verb{
    .name = "sweep",
    .summary = "measure every combination of values, repeatedly, and what input costs in each",
    .run = run,
};

}  // namespace penstock
