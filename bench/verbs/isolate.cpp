// SPDX-License-Identifier: Apache-2.0
// penstock isolate: finds what one feeder costs one trainer, where, and what would help. Prints the
// answer, and writes files to a folder.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <optional>

#include "bench/cli.h"
#include "bench/config/flags.h"
#include "bench/config/run_flags.h"
#include "bench/config/training_loop.h"
#include "bench/config/unused_flags.h"
#include "bench/dataset/default_dataset.h"
#include "bench/isolate/isolate_progress.h"
#include "bench/isolate/isolation_json.h"
#include "bench/isolate/isolation_report.h"
#include "bench/isolate/isolator.h"
#include "bench/isolate/message_ladder.h"
#include "bench/record/machine.h"
#include "bench/run/processes/launch_flags.h"
#include "bench/sweep/child_run.h"
#include "bench/sweep/private_folder.h"
#include "bench/sweep/sweep.h"
#include "bench/verbs/device_choice.h"
#include "bench/watch/watch_record.h"
#include "bench/watch/watch_summary.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/options.h"

namespace penstock {
namespace {

/// The shortest timeout of a run, for small budgets.
constexpr Nanoseconds kMinRunTimeout = std::chrono::minutes(1);
constexpr std::string_view kDefaultFeeder = "queue";

struct Arguments {
  RunConfig config;
  isolate::IsolatePlan plan;
  std::string out = "out/isolate";
  bool verbose = false;
  bool json = false;
  bool alone = false;
  std::string constant_endpoint;
  std::string vary;
  std::string from_watch;               ///< a record of `penstock watch`; empty: none
  std::optional<PrivateFolder> folder;  ///< for the ladder's sockets
};

constexpr FlagGroup flag{"Isolate"};

std::vector<Flag> isolate_flags(Arguments& arguments) {
  isolate::IsolatePlan& plan = arguments.plan;
  return join_flags(
      run_flags(arguments.config), loader_flags(arguments.config),
      std::vector<Flag>{
          flag.time("budget",
                    "time for the whole measurement, starts of loaders included, such as 45s or "
                    "5min",
                    "90s", plan.budget),
          flag.percent(
              "half_width",
              "stop when the 95 % interval of the cost is within +- this percent of a step",
              plan.targets.half_width),
          flag.percent("margin", "smallest difference that matters, in percent",
                       plan.targets.margin),
          flag.boolean("verify",
                       "then try the most promising remedy, for up to 0.6 x --budget more",
                       plan.verify),
          flag("vary",
               "settings to try, all combinations, such as num_workers=2,4,8,prefetch_factor=2,4; "
               "the best one is then measured again",
               "", [&arguments](const std::string& text) { arguments.vary = text; }),
          flag.time("vary_budget", "time for --vary, such as 4min", "4min", plan.vary_budget),
          flag.boolean(
              "ladder",
              "then measure the cost of each stage, from batches on the device to cold files",
              plan.ladder),
          flag.time("ladder_budget", "time for --ladder, such as 4min", "4min", plan.ladder_budget),
          flag.text("constant_endpoint",
                    "address that your `penstock serve --feeder host` sends to, for --ladder "
                    "with zmq-consume; default: a local one is started",
                    arguments.constant_endpoint),
          flag.text(
              "from_watch",
              "record of `penstock watch`: the device replays its steps, and --loop is that of "
              "the watched training",
              arguments.from_watch),
          flag.text("out", "folder for isolation.json, results.json, results.csv and report.html",
                    arguments.out),
          flag.boolean("json", "print the record, isolation.json, in place of the answer in words",
                       arguments.json),
          flag.boolean("verbose", "print the output of the runs", arguments.verbose),
          alone_flag(arguments.alone)});
}

void refuse_what_cannot_be_isolated(const RunConfig& config, const Runner::Components& components) {
  if (components.feeder->is_ceiling) {
    throw ConfigError(
        "--fake-location is {}, the ceiling that costs are measured against; expected another "
        "feeder, such as {}",
        config.fake_location, kDefaultFeeder);
  }
  if (!components.model->computes) {
    throw ConfigError(
        "--model is null, which does not train, so input costs nothing; expected a model of "
        "`penstock list`");
  }
  if (config.eval || config.num_epochs > 0) {
    throw ConfigError(
        "--eval and --num-epochs decide how long a run is, which isolate does itself; leave them "
        "out, and give --num-batches or --budget");
  }
}

/// The device and the loop of a watched training, unless they are typed. Throws ConfigError.
void follow_watched(RunConfig& config, const std::string& path,
                    std::span<const std::string> arguments) {
  const std::optional<watch::WatchRecord> record = watch::read_record(path);
  const std::optional<watch::LoopPace> pace = record ? watch::loop_pace(*record) : std::nullopt;
  if (!pace) {
    throw ConfigError(
        "--from-watch is '{}'; expected a record of `penstock watch --json` or its folder, with "
        "steps of a loop",
        path);
  }
  if (!has_loader(config)) {
    throw ConfigError(
        "--from-watch has the pace of the watched training, but not its loader; give --loader too");
  }
  std::filesystem::path file = path;
  if (std::filesystem::is_directory(file)) file /= "watch.json";
  if (!is_typed("device", arguments)) {
    config.device = fmt::format("emulated:trace='{}'", file.string());
  }
  if (is_typed("loop", arguments)) return;
  config.loop =
      pace->waits_for_steps ? "sync" : fmt::format("async:launch={:.3f}", pace->launch_ms);
}

/// Resolves the configuration, and derives the rest of the plan from it.
void complete(Arguments& arguments, const Invocation& invocation) {
  constexpr std::int64_t kFewest = 2 * static_cast<std::int64_t>(analysis::kMinKeptSteps);
  isolate::IsolatePlan& plan = arguments.plan;
  Runner::Components components = find_components(arguments.config);
  refuse_what_cannot_be_isolated(arguments.config, components);
  if (is_typed("num_batches", invocation.arguments)) plan.steps = arguments.config.num_batches;
  if (plan.steps > 0 && plan.steps < kFewest) {
    throw ConfigError(
        "--num-batches is {}; expected at least {}, half of which may be warm-up, or no such flag",
        plan.steps, kFewest);
  }
  arguments.config = state_batches(arguments.config, components, invocation.stop);
  plan.config = resolve(arguments.config, components);
  plan.cores = usable_cores();
  plan.has_producer = components.feeder->needs_producer;
  plan.has_loader = components.feeder->describe_batches != nullptr;
  plan.threads_matter = components.feeder->reads_files;
  plan.command = command_text("isolate", invocation.arguments);
  if (const std::string reason = unavailable_reason(arguments.config); !reason.empty()) {
    throw Unavailable(reason);
  }
  dataset::ensure_data_of(arguments.config, *components.feeder, invocation.stop);
  if (!arguments.vary.empty()) plan.settings = isolate::settings_of(arguments.vary, plan.config);
  if (!arguments.constant_endpoint.empty() && !(plan.ladder && plan.has_producer)) {
    throw ConfigError(
        "--constant-endpoint is for a rung of the ladder of zmq-consume; expected --ladder and "
        "--fake-location zmq-consume:..., or no such flag");
  }
  if (plan.ladder && plan.has_producer) {
    arguments.folder.emplace();
    plan.messages = isolate::MessageLadder{.program = invocation.program,
                                           .folder = arguments.folder->path(),
                                           .endpoint = arguments.constant_endpoint};
    return;
  }
  const FeederEntry* const files = match_entry(feeder_table(), "queue");
  if (plan.ladder && files != nullptr && !plan.has_loader) {
    dataset::ensure_data_of(plan.config, *files, invocation.stop);
    plan.data = isolate::ladder_data(plan.config, invocation.stop);
  }
}

bool write_files(const isolate::Isolation& found, const ResultFolder& folder) {
  try {
    isolate::write_isolation_files(found, folder.path());
    return true;
  } catch (const Error& error) {
    fmt::print(stderr, "penstock: {}\n", error.what());
    return false;
  }
}

int exit_code(const isolate::Isolation& found, bool saved) {
  if (!saved) return 6;
  if (!found.cost) {
    const auto skipped = [&](std::size_t row) {
      return found.measurement.sweep.rows.size() <= row ||
             found.measurement.sweep.rows[row].status == Status::skipped;
    };
    return skipped(found.measurement.ceiling_row) || skipped(found.measurement.coupled_row) ? 3 : 6;
  }
  if (has_failures(found.measurement.sweep)) return 6;
  return found.cost->verdict == statistics::Verdict::undecided ? 7 : 0;
}

int isolate(const Arguments& arguments, const Invocation& invocation) {
  ChildRunOptions options{.program = invocation.program,
                          .timeout = std::max(arguments.plan.budget, kMinRunTimeout),
                          .show_stderr = arguments.verbose};
  SteadyClock clock;
  const ResultFolder folder(arguments.out);
  const auto meter = [&] { return isolate::read_noise(clock.now(), isolate::own_cpu_seconds()); };
  isolate::Isolation found;
  bool saved = false;
  {
    isolate::IsolateProgress progress(folder, arguments.verbose);
    options.on_progress = [&](const Progress& now) { progress.running(now); };
    found = isolate::isolate(arguments.plan, runs_in_children(options), meter, clock, progress,
                             invocation.stop);
    saved = progress.saved();
  }
  saved = write_files(found, folder) && saved;
  if (arguments.json) {
    std::cout << to_json(found).dump() << "\n";
    return exit_code(found, saved);
  }
  isolate::write_isolation_text(found, std::cout);
  fmt::print("{}{}", saved ? "Figures, every step time and the machine: " : "",
             files_line(folder, {"report.html", "isolation.json"}, saved));
  return exit_code(found, saved);
}

int run(const Invocation& invocation) {
  const Time began = SteadyClock().now();
  Arguments arguments;
  arguments.config.device = kAutoDevice;
  apply_like_of(arguments.config, invocation.arguments);
  arguments.config.fake_location = kDefaultFeeder;
  if (!parse_flags(
          {.verb = "isolate",
           .summary = "Measures what one feeder costs one trainer, which stage causes the cost, "
                      "and what would remove it.",
           .common = "loader loader-args python loop from-watch fake-location model device "
                     "data-dir batch-size "
                     "num-gpus budget vary "
                     "verify ladder out verbose",
           .examples =
               "isolate --loader my_loader.py:make_loader --device emulated:img_per_s=2400\n"
               "isolate --loader my_loader.py:make_loader --vary num_workers=2,4,8\n"
               "isolate --data-dir my/images --device emulated:img_per_s=1000\n"
               "isolate --data-dir my/images --verify --budget 2min\n"
               "isolate --feeder zmq-consume:endpoint=tcp://127.0.0.1:5555"},
          isolate_flags(arguments), invocation.arguments)) {
    return 0;
  }
  expect_one_process("isolate", arguments.alone);
  if (!arguments.from_watch.empty()) {
    follow_watched(arguments.config, arguments.from_watch, invocation.arguments);
  }
  const std::string chosen = choose_devices(std::span(&arguments.config, 1), invocation.arguments);
  if (!chosen.empty()) fmt::print(stderr, "penstock: {}\n", chosen);
  say_unused_flags(std::span(&arguments.config, 1), invocation.arguments);
  complete(arguments, invocation);
  arguments.plan.spent = SteadyClock().now() - began;
  return isolate(arguments, invocation);
}

}  // namespace

extern constinit const VerbEntry isolate_verb{
    .name = "isolate",
    .summary = "measure what one feeder costs one trainer, which stage causes it, and what helps",
    .run = run,
};

}  // namespace penstock
