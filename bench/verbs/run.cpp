// SPDX-License-Identifier: Apache-2.0
// penstock run: one configuration, once.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>

#include "bench/cli.h"
#include "bench/cluster_run.h"
#include "bench/command_text.h"
#include "bench/dataset/default_dataset.h"
#include "bench/device_choice.h"
#include "bench/exit_code.h"
#include "bench/leave_on_stop.h"
#include "bench/peer_watch.h"
#include "bench/process_run.h"
#include "bench/report.h"
#include "bench/result_json.h"
#include "bench/run_watch.h"
#include "bench/runner.h"
#include "bench/saved_results.h"
#include "bench/step_records.h"
#include "bench/step_table.h"
#include "bench/terminal.h"
#include "bench/trace.h"
#include "bench/unused_flags.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/io/output_file.h"
#include "dataflow/packed/detect_source.h"
#include "trainer/servers/worker_processes.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

/// The resolved values that are not the default ones, on one line; with `all` every value.
std::string resolved_line(const RunConfig& config, bool all) {
  const std::vector<std::string> defaults = to_flags(RunConfig());
  std::string text = "penstock run";
  for (const std::string& flag : to_flags(config)) {
    if (all || std::ranges::find(defaults, flag) == defaults.end()) text += " " + shell_word(flag);
  }
  return text;
}

void print_outcome(const RunResult& result) {
  for (const std::string& note : result.notes) fmt::print(stderr, "penstock: {}\n", note);
  if (result.status != Status::ok) {
    fmt::print(stderr, "penstock: {}: {}\n", to_string(result.status), result.reason);
  }
}

/// --trace-file and --trace-steps.
struct TraceWish {
  std::string file;  ///< empty: no trace
  std::int64_t steps = 50;
};

/// The trace of a run and the file that it goes to, which is opened before anything is measured.
class TraceFile {
 public:
  TraceFile(const TraceWish& wish, const Clock& clock) {
    if (wish.file.empty()) return;
    try {
      out_.emplace(wish.file);
    } catch (const DataError& error) {
      throw ConfigError(fmt::format(
          "--trace-file: {}; name a file in a folder that is there and may be written to",
          error.what()));
    }
    trace_.emplace(static_cast<std::size_t>(wish.steps), clock);
  }
  Trace* trace() noexcept { return trace_ ? &*trace_ : nullptr; }
  /// Removes the unfinished file. Not while write() runs.
  void discard() { out_.reset(); }
  void write() {
    if (!trace_) return;
    std::ostringstream text;
    trace_->write(text);
    out_->write(text.view());
    out_->commit();
  }

 private:
  std::optional<OutputFile> out_;
  std::optional<Trace> trace_;
};

/// Says once on standard error that a window takes more steps than were asked for, with the time
/// left by its first steps.
class ExtensionNotice final : public RunListener {
 public:
  explicit ExtensionNotice(const RunConfig& config) : asked_(config.num_batches) {}
  void window_extended(std::int64_t steps) override {
    steps_ = steps;
    seconds_ = 0;
  }
  void step(const StepReport& step) override {
    constexpr std::size_t kTimed = 10;
    seconds_ += step.seconds;
    if (steps_ == 0 || step.index + 1 != kTimed) return;
    const double left_s =
        seconds_ / kTimed * static_cast<double>(steps_ - static_cast<std::int64_t>(kTimed));
    fmt::print(stderr,
               "penstock: {} steps are measured instead of {}, so that batches made before them do "
               "not decide the rate: {} left; --noextend-window measures {}\n",
               steps_, asked_, duration_text(left_s), asked_);
    steps_ = 0;
  }

 private:
  const std::int64_t asked_;
  std::int64_t steps_ = 0;
  double seconds_ = 0;
};

/// What a run leaves behind, who looks on, and who takes part.
struct Wish {
  TraceWish trace;
  WatchWish watch;
  bool json = false;
  bool verbose = false;     ///< show every resolved value
  std::string format;       ///< a report's name; empty: the table, while it runs
  std::string out;          ///< file for the JSON object; empty: none
  bool may_extend = false;  ///< whether the window is extended was not said: the feeder decides
  Processes* processes = nullptr;       ///< null: this one alone
  PeerWatch* peers = nullptr;           ///< over them; null: this one alone
  ServerConnection* servers = nullptr;  ///< null: there are none
  std::function<void()> leave;          ///< ends the process at once

  bool is_first() const { return processes == nullptr || processes->launch().rank == 0; }
};

void ensure_data(const RunConfig& wanted, const Runner::Components& components,
                 std::stop_token stop) {
  if (components.processes != nullptr) {
    ensure_data_together(*components.processes, wanted, *components.feeder, std::move(stop));
  } else {
    ensure_data_of(wanted, *components.feeder, std::move(stop));
  }
}

/// A run that starts its own producer may take from it as many batches as a sustained rate needs,
/// unless it does a stated number of steps.
RunConfig with_extension(RunConfig config, const FeederEntry& feeder, const Wish& wish) {
  const bool counts_steps = config.eval || config.num_epochs > 0 || !config.train_dir.empty() ||
                            evaluates_while_training(config) || wish.processes != nullptr;
  if (!wish.may_extend || counts_steps || feeder.outside_reserve == nullptr) return config;
  const Options options = options_of(config.fake_location, feeder.options);
  config.extend_window = config.extend_window || options.given("producer");
  return config;
}

Json described(const RunResult& result) {
  Json json = to_json(result);
  json["environment"] = to_json(read_environment());
  return json;
}

/// Writes --out before anything is printed, since a reader of the output may end the process. A
/// result that cannot be written is still printed. Returns the exit code.
int keep(const RunResult& result, const Wish& wish) try {
  if (wish.out.empty()) return result.exit_code;
  replace_file(wish.out, described(result).dump(1, ' ', false, Json::error_handler_t::replace));
  std::error_code ignored;
  std::filesystem::remove(step_records_path(wish.out), ignored);
  return result.exit_code;
} catch (const DataError& error) {
  fmt::print(stderr, "penstock: --out: {}\n", error.what());
  return result.exit_code != 0 ? result.exit_code : exit_code_of(std::current_exception());
}

/// Before anything is measured. Throws ConfigError.
void check_out(const Wish& wish) {
  if (wish.out.empty()) return;
  try {
    static_cast<void>(find_output(wish.out));
  } catch (const DataError& error) {
    throw ConfigError(fmt::format("--out: {}", error.what()));
  }
}

void print_json(const RunResult& result) {
  fmt::print("{}\n", described(result).dump(-1, ' ', false, Json::error_handler_t::replace));
  std::fflush(stdout);
}

/// Where another rank was lost.
std::string keep_partial(RunResult result, const std::string& reason, const Wish& wish) {
  result.reason = reason;
  static_cast<void>(keep(result, wish));
  if (wish.json && wish.is_first()) print_json(result);
  return wish.out;
}

RunResult watched(Runner& runner, Clock& clock, const Wish& wish, RunListener* table,
                  std::stop_token stop) {
  RunWatch watch(wish.watch, runner, clock, table);
  const bool to_file = !wish.out.empty() && wish.is_first() && !find_output(wish.out).is_device;
  StepRecords records(to_file ? step_records_path(wish.out) : "", runner.config(), clock);
  ListenerGroup listeners;
  listeners.add(watch.listener());
  listeners.add(records);
  if (wish.processes == nullptr) return runner.run(listeners, std::move(stop));
  const PeerWatch::Keeping keeping(wish.peers, [&](const std::string& reason) {
    return keep_partial(records.so_far(), reason, wish);
  });
  const auto enter = [progress = wish.processes->progress()](RankPhase phase) {
    if (progress != nullptr) progress->enter(phase);
  };
  await_all_ready(*wish.processes, runner.examples_per_epoch());
  enter(RankPhase::training);
  RunResult result = runner.run(listeners, std::move(stop));
  enter(RankPhase::gathering);
  gather_ranks(*wish.processes, result);
  enter(RankPhase::leaving);
  return result;
}

/// In tf_cnn_benchmarks' words: CIFAR-10 by its source or its files, else ImageNet, as which all
/// other images are read.
std::string dataset_of(const RunConfig& config, const FeederEntry& feeder) {
  constexpr std::string_view kDefault = "imagenet", kCifar = "cifar10";
  const bool has_source = std::ranges::any_of(
      feeder.options, [](const OptionSpec& option) { return option.name == "source"; });
  if (!feeder.reads_files || !has_source) return std::string(kDefault);
  const Options options = options_of(config.fake_location, feeder.options);
  const ComponentText source = source_text(options.text("source"), config.data_dir);
  return std::string(canonical_name(source.name) == kCifar ? kCifar : kDefault);
}

/// Filling memory and waiting for others may take long, and nothing is measured yet: a stop request
/// ends the process soon. A compilation that it ends saves what it found out first.
std::unique_ptr<Runner> make_runner(const RunConfig& wanted, Clock& clock,
                                    const Runner::Components& components, TraceFile& trace,
                                    const Wish& wish, const std::stop_token& stop) {
  const LeaveOnStop leave(stop, [&] {
    trace.discard();
    if (wish.peers != nullptr) wish.peers->leave();  // this rank is stopped, not lost
    wish.leave();
  });
  return std::make_unique<Runner>(wanted, clock, components, trace.trace(), stop);
}

int run_with_table(const RunConfig& asked, const Runner::Components& components, const Wish& wish,
                   std::stop_token stop) {
  const RunConfig wanted = with_extension(asked, *components.feeder, wish);
  ensure_data(wanted, components, stop);
  SteadyClock clock;
  TraceFile trace(wish.trace, clock);
  const std::unique_ptr<Runner> made = make_runner(wanted, clock, components, trace, wish, stop);
  Runner& runner = *made;
  const bool synthetic = !components.feeder->reads_files && !components.feeder->needs_producer;
  fmt::print(stderr, "{}\n", resolved_line(runner.config(), wish.verbose));
  fmt::print("{}", format_header({.config = runner.config(),
                                  .synthetic = synthetic,
                                  .dataset = dataset_of(runner.config(), *components.feeder),
                                  .servers = components.servers != nullptr,
                                  .examples_per_epoch = runner.examples_per_epoch()}));
  StepTable table(runner.config(), stdout);
  ExtensionNotice notice(runner.config());
  ListenerGroup listeners;
  listeners.add(table);
  listeners.add(notice);
  const RunResult result = watched(runner, clock, wish, &listeners, std::move(stop));
  const int code = keep(result, wish);
  if (evaluates_while_training(wanted)) {
    fmt::print("Done with training\n");
  } else if (result.img_per_s > 0) {
    fmt::print("{}{}", format_total(result), format_ranks(result));
  }
  std::fflush(stdout);
  print_outcome(result);
  trace.write();
  return code;
}

/// Without the table.
RunResult run_silently(const RunConfig& asked, const Wish& wish, std::stop_token stop) {
  Runner::Components components = find_components(asked);
  const RunConfig wanted = with_extension(asked, *components.feeder, wish);
  components.processes = wish.processes;
  components.servers = wish.servers;
  ensure_data(wanted, components, stop);
  SteadyClock clock;
  TraceFile trace(wish.trace, clock);
  const std::unique_ptr<Runner> made = make_runner(wanted, clock, components, trace, wish, stop);
  Runner& runner = *made;
  RunResult result = watched(runner, clock, wish, nullptr, std::move(stop));
  trace.write();
  return result;
}

/// Configuration errors become a result too, so that a reader of the JSON finds the reason there.
int run_to_json(const RunConfig& wanted, const Wish& wish, std::stop_token stop) {
  RunResult result;
  try {
    result = run_silently(wanted, wish, std::move(stop));
  } catch (const std::exception& error) {
    result.config = wanted;
    result.exit_code = exit_code_of(std::current_exception());
    result.status = result.exit_code == 3 ? Status::skipped : Status::failed;
    result.reason = failure_text(error);
  }
  const int code = keep(result, wish);
  print_json(result);
  print_outcome(result);
  return code;
}

int run_to_report(const RunConfig& wanted, const Wish& wish, std::stop_token stop) {
  const ReportEntry& report = find_entry(report_table(), wish.format);
  const RunResult result = run_silently(wanted, wish, std::move(stop));
  const int code = keep(result, wish);
  report.write(sweep_of({result}, read_environment()), style_of(STDOUT_FILENO), std::cout);
  std::cout.flush();
  print_outcome(result);
  return code;
}

/// A rank beside rank 0 prints nothing but what went wrong.
int run_beside(const RunConfig& wanted, Wish wish, std::stop_token stop) {
  wish.trace.file.clear();
  wish.watch = {};
  const RunResult result = run_silently(wanted, wish, std::move(stop));
  if (result.exit_code != 0 && result.exit_code != 130) print_outcome(result);
  return result.exit_code;
}

int run_wanted(const RunConfig& config, const Wish& wish, std::stop_token stop) {
  if (wish.processes != nullptr && wish.processes->launch().rank > 0) {
    return run_beside(config, wish, std::move(stop));
  }
  if (wish.json) return run_to_json(config, wish, std::move(stop));
  if (!wish.format.empty()) return run_to_report(config, wish, std::move(stop));
  Runner::Components components = find_components(config);
  components.processes = wish.processes;
  components.servers = wish.servers;
  return run_with_table(config, components, wish, std::move(stop));
}

/// The same in each of several processes, none of which outlives another's failure.
int run_together(Processes& processes, const RunConfig& config, const Wish& wish,
                 std::stop_token stop) {
  int code = 0;
  try {
    check_alike(processes, config);
    code = run_wanted(config, wish, stop);
  } catch (const std::exception& error) {
    fmt::print(stderr, "penstock: rank {}: {}\n", processes.launch().rank, failure_text(error));
    code = exit_code_of(std::current_exception());
  }
  std::fflush(stdout);
  if (code != 0 && wish.peers != nullptr) wish.peers->leave();
  if (stop.stop_requested()) processes.exit_stopped(code);
  if (code != 0) processes.abort(code);
  return code;
}

/// A worker of a run with parameter servers.
int run_as_worker(const ClusterWish& cluster, const RunConfig& config, Wish& wish,
                  const std::stop_token& stop) {
  SteadyClock clock;
  const std::unique_ptr<ServerConnection> servers = join_servers(cluster, config, clock, stop);
  const std::unique_ptr<Processes> processes = make_worker_processes(*servers);
  wish.servers = servers.get();
  wish.processes = processes.get();
  return run_together(*processes, config, wish, stop);
}

std::vector<Flag> trace_flags(TraceWish& wish) {
  const auto set_steps = [&wish](const std::string& text) {
    wish.steps = parse_integer(text, "--trace-steps");
    if (wish.steps < 1) {
      throw ConfigError(
          fmt::format("--trace-steps is {}; expected a whole number of at least 1", text));
    }
  };
  return {{.name = "trace_file",
           .help = "file for a timeline of the first measured steps, for Perfetto or "
                   "chrome://tracing; default: none",
           .set = [&wish](const std::string& text) { wish.file = text; },
           .group = "Output"},
          {.name = "trace_steps",
           .help = "steps in the timeline; above 200 a recorded program is one span",
           .fallback = "50",
           .set = set_steps,
           .group = "Output"}};
}

std::vector<Flag> output_flags(Wish& wish) {
  const auto flag = [](std::string name, std::string help,
                       std::function<void(const std::string&)> set) {
    return Flag{
        .name = std::move(name), .help = std::move(help), .set = std::move(set), .group = "Output"};
  };
  std::vector<std::string> reports;
  for (const ReportEntry* report : report_table().entries) reports.emplace_back(report->name);
  std::vector<Flag> flags = trace_flags(wish.trace);
  flags.push_back(flag("json", "print one JSON object instead of the table",
                       [&](const std::string& text) { wish.json = parse_flag(text, "--json"); }));
  flags.back().boolean = true;
  flags.back().fallback = "false";
  flags.push_back(
      flag("verbose", "print the value of every flag; default: those that differ from the defaults",
           [&](const std::string& text) { wish.verbose = parse_flag(text, "--verbose"); }));
  flags.back().boolean = true;
  flags.push_back(flag("format",
                       "print this report at the end instead of the table: " + join(reports),
                       [&](const std::string& text) { wish.format = text; }));
  flags.push_back(
      flag("out", "file for the JSON object, also if the run is stopped or fails; default: none",
           [&](const std::string& text) { wish.out = text; }));
  flags.push_back(
      flag("progress_fd", "file descriptor for lines of JSON about the progress; default: none",
           [&](const std::string& text) { wish.watch.progress_fd = parse_progress_fd(text); }));
  flags.push_back(
      flag("prometheus_port",
           "port for http://127.0.0.1:PORT/metrics (Prometheus) during the run; default: none",
           [&](const std::string& text) {
             wish.watch.prometheus_port = parse_port(text, "--prometheus-port");
           }));
  return flags;
}

/// tensorpack's name for its producer, which feeds a run and has no result.
constexpr std::string_view kProducer = "zmq-serve";

/// `penstock serve` with the batches of `config`, as tensorpack's producer sends them: the same
/// again and again, as many waiting as --prefetch says. Options of zmq-serve are flags of `serve`.
int serve_batches(const RunConfig& config, const Invocation& invocation) {
  RunConfig served = config;
  served.fake_location = "host";
  say_unused_flags(std::span(&served, 1), invocation.arguments);
  std::vector<std::string> words{"--fake-location=host", fmt::format("--hwm={}", config.prefetch)};
  for (const char* const name : {"model", "batch_size", "image_size", "classes", "seed"}) {
    words.push_back(fmt::format("--{}={}", kebab(name), find_config_key(name).get(config)));
  }
  for (const auto& [name, value] : parse_component(config.fake_location).values) {
    words.push_back(fmt::format("--{}={}", kebab(name), value));
  }
  fmt::print(stderr, "penstock: --fake-location {} is `penstock serve {}`\n", kProducer,
             join(words, " "));
  return find_entry(verb_table(), "serve")
      .run({invocation.program, std::move(words), invocation.stop, invocation.leave});
}

int run(const Invocation& invocation) {
  RunConfig config;
  config.device = kAutoDevice;
  Wish wish;
  wish.leave = invocation.leave;
  apply_like_of(config, invocation.arguments);
  std::vector<Flag> flags = run_flags(config);
  for (Flag& flag : output_flags(wish)) flags.push_back(std::move(flag));
  ClusterWish cluster;
  for (Flag& flag : cluster_flags(cluster)) flags.push_back(std::move(flag));
  if (!parse_flags(
          {.verb = "run",
           .summary = "Runs one configuration once and prints its rate.",
           .common = "fake-location model device data-dir batch-size num-gpus num-batches "
                     "feeder-threads trace-file json out verbose",
           .examples = "run --feeder queue --data-dir my/images --device emulated:img_per_s=1000\n"
                       "run --feeder gpu --model tiny_cnn --device cpu --num-batches 20\n"
                       "run --feeder zmq-consume:endpoint=tcp://127.0.0.1:5555 --batch-size 64"},
          flags, invocation.arguments)) {
    return 0;
  }
  // Parameter servers and their workers are of devices whose gradients lie in the host's memory.
  if (cluster.job != ClusterWish::Job::none && config.device == kAutoDevice) {
    config.device = RunConfig().device;
  }
  const std::string chosen = choose_devices(std::span(&config, 1), invocation.arguments);
  if (config.num_epochs > 0 && is_typed("num_batches", invocation.arguments)) {
    throw ConfigError("--num-batches and --num-epochs exclude each other; keep one");
  }
  if (wish.json && !wish.format.empty()) {
    throw ConfigError(fmt::format(
        "--json and --format={} exclude each other; keep one (--format json has the form of a "
        "sweep's results.json)",
        wish.format));
  }
  const bool wants_result = wish.json || !wish.format.empty() || !wish.out.empty();
  if (canonical_name(parse_component(config.fake_location).name) == kProducer && !wants_result) {
    return serve_batches(config, invocation);
  }
  const auto typed = [&](const char* name) { return is_typed(name, invocation.arguments); };
  wish.may_extend =
      !typed("extend_window") && !typed("noextend_window") && !typed("no_extend_window");
  check_out(wish);
  // The table is a live view itself; a line that changes would break it.
  wish.watch.terminal = is_terminal(STDERR_FILENO) && !same_terminal(STDOUT_FILENO, STDERR_FILENO);
  check_cluster(cluster, config);
  if (cluster.job == ClusterWish::Job::ps) return serve_job(cluster, config, invocation.stop);
  const auto find = [](const char* name) { return std::getenv(name); };
  const std::optional<Launch> launch = read_launch(find);
  const bool is_first = cluster.task_index == 0 && (!launch || launch->rank == 0);
  if (is_first) {
    if (!chosen.empty()) fmt::print(stderr, "penstock: {}\n", chosen);
    say_unused_flags(std::span(&config, 1), invocation.arguments);
  }
  if (cluster.job == ClusterWish::Job::worker) {
    return run_as_worker(cluster, config, wish, invocation.stop);
  }
  if (!spans_processes(config, launch)) return run_wanted(config, wish, invocation.stop);
  SteadyClock clock;
  PeerWatch peers(config, *launch, find);
  // The launcher ends all as soon as it hears of a loss or an interruption: those who stop because
  // of that are not lost.
  const std::stop_callback leaving(invocation.stop, [&peers] { peers.leave(); });
  const std::unique_ptr<Processes> processes = join_run(config, launch, clock);
  peers.follow(*processes);
  wish.processes = processes.get();
  wish.peers = &peers;
  return run_together(*processes, config, wish, invocation.stop);
}

}  // namespace

extern constinit const VerbEntry run_verb{
    .name = "run",
    .summary = "measure one configuration once: a table of steps and the total images/sec",
    .run = run,
};

}  // namespace penstock
