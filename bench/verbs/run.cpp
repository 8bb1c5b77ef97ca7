// SPDX-License-Identifier: Apache-2.0
// penstock run: runs one configuration once.
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
#include "bench/config/flags.h"
#include "bench/config/run_flags.h"
#include "bench/config/training_rules.h"
#include "bench/config/unused_flags.h"
#include "bench/dataset/default_dataset.h"
#include "bench/document/terminal.h"
#include "bench/record/exit_code.h"
#include "bench/record/result_json.h"
#include "bench/record/saved_results.h"
#include "bench/record/saved_steps.h"
#include "bench/report/report.h"
#include "bench/report/run_summary.h"
#include "bench/report/step_table.h"
#include "bench/run/observe/run_watch.h"
#include "bench/run/observe/step_records.h"
#include "bench/run/processes/parameter_servers.h"
#include "bench/run/processes/process_run.h"
#include "bench/run/runner.h"
#include "bench/run/trace/graph_file.h"
#include "bench/run/trace/trace.h"
#include "bench/verbs/device_choice.h"
#include "dataflow/datasets/detect_source.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/machine/output_file.h"
#include "trainer/cluster/servers/connection.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

/// The resolved values that differ from the defaults, on one line; with `all`, every value.
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

/// --trace-file, --profile-file and --trace-steps.
struct TraceArguments {
  std::string file;     ///< empty: no trace
  std::string profile;  ///< empty: no profile
  std::int64_t steps = 50;
};

/// The trace of a run and its files, which are opened before the measurement.
class TraceFile {
 public:
  TraceFile(const TraceArguments& wish, const Clock& clock) {
    open("--trace-file", wish.file, out_);
    open("--profile-file", wish.profile, profile_);
    if (!out_ && !profile_) return;
    trace_.emplace(static_cast<std::size_t>(wish.steps), clock);
  }
  Trace* trace() noexcept { return trace_ ? &*trace_ : nullptr; }
  /// Removes the unfinished file. Not during write().
  void discard() {
    out_.reset();
    profile_.reset();
  }
  void write() {
    if (profile_) {
      constexpr std::size_t kShown = 40;
      profile_->write(trace_->profile().text(kShown));
      profile_->commit();
    }
    if (!out_) return;
    std::ostringstream text;
    trace_->write(text);
    out_->write(text.view());
    out_->commit();
  }

 private:
  static void open(const char* flag, const std::string& path, std::optional<OutputFile>& file) {
    if (path.empty()) return;
    try {
      file.emplace(path);
    } catch (const DataError& error) {
      throw ConfigError(
          fmt::format("{}: {}; name a file in an existing, writable folder", flag, error.what()));
    }
  }

  std::optional<OutputFile> out_, profile_;
  std::optional<Trace> trace_;
};

/// What a run writes, and who takes part in it.
struct Arguments {
  TraceArguments trace;
  WatchArguments watch;
  std::string graph_file;  ///< empty: none
  bool json = false;
  bool verbose = false;     ///< show every resolved value
  std::string format;       ///< a report's name; empty: the table, during the run
  std::string out;          ///< file for the JSON object; empty: none
  bool may_extend = false;  ///< the user did not say whether to extend the window, so the feeder
                            ///< decides
  cluster::Processes* processes = nullptr;  ///< null: this process alone
  PeerWatch* peers = nullptr;               ///< watches the processes; null: this process alone
  cluster::ServerConnection* servers = nullptr;  ///< null: no parameter servers
  std::function<void()> leave;                   ///< ends the process immediately

  bool is_first() const { return processes == nullptr || processes->launch().rank == 0; }
};

/// A run that starts its producer may take as many batches as a sustained rate needs, unless the
/// number of steps is fixed.
RunConfig with_extension(RunConfig config, const FeederEntry& feeder, const Arguments& wish) {
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

/// Writes --out before anything is printed, because a reader of the output may end the process.
/// Prints the result even if it cannot be written. Returns the exit code.
int keep(const RunResult& result, const Arguments& wish) try {
  if (wish.out.empty()) return result.exit_code;
  replace_file(wish.out, described(result).dump(1, ' ', false, Json::error_handler_t::replace));
  std::error_code ignored;
  std::filesystem::remove(step_records_path(wish.out), ignored);
  return result.exit_code;
} catch (const DataError& error) {
  fmt::print(stderr, "penstock: --out: {}\n", error.what());
  return result.exit_code != 0 ? result.exit_code : exit_code_of(std::current_exception());
}

/// Called before the measurement. Throws ConfigError.
void check_out(const Arguments& wish) {
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

/// Keeps a partial result after another rank was lost.
std::string keep_partial(RunResult result, const std::string& reason, const Arguments& wish) {
  result.reason = reason;
  static_cast<void>(keep(result, wish));
  if (wish.json && wish.is_first()) print_json(result);
  return wish.out;
}

RunResult watched(Runner& runner, Clock& clock, const Arguments& wish, RunListener* table,
                  std::stop_token stop) {
  RunWatch watch(
      wish.watch, runner.config(), [&runner] { return runner.queues(); }, clock, table);
  const bool to_file = !wish.out.empty() && wish.is_first() && !find_output(wish.out).is_device;
  StepRecords records(to_file ? step_records_path(wish.out) : "", runner.config(), clock);
  ListenerGroup listeners;
  listeners.add(watch.listener());
  listeners.add(records);
  if (wish.processes == nullptr) return runner.run(listeners, std::move(stop));
  const PeerWatch::Keeping keeping(wish.peers, [&](const std::string& reason) {
    return keep_partial(records.so_far(), reason, wish);
  });
  const auto enter = [progress = wish.processes->progress()](cluster::RankPhase phase) {
    if (progress != nullptr) progress->enter(phase);
  };
  // Only rank 0 has opened an evaluation set.
  await_all_ready(*wish.processes, runner.config().eval ? 0 : runner.examples_per_epoch());
  enter(cluster::RankPhase::training);
  RunResult result = runner.run(listeners, std::move(stop));
  enter(cluster::RankPhase::gathering);
  gather_ranks(*wish.processes, result);
  enter(cluster::RankPhase::leaving);
  return result;
}

Runner::Components components_of(const RunConfig& config, const Arguments& wish) {
  Runner::Components components = find_components(config);
  components.processes = wish.processes;
  components.servers = wish.servers;
  return components;
}

/// A run that is ready to begin.
struct PreparedRun {
  PreparedRun(const RunConfig& asked, const Arguments& wish, const std::stop_token& stop)
      : components(components_of(asked, wish)),
        wanted(with_extension(adopt_batches(asked, components, stop), *components.feeder, wish)),
        trace(wish.trace, clock) {
    if (wish.processes != nullptr) {
      ensure_data_together(*wish.processes, wanted, *components.feeder, stop);
    } else {
      dataset::ensure_data_of(wanted, *components.feeder, stop);
    }
    // Filling memory and waiting for other processes may take long, and nothing is measured yet. A
    // stop request therefore ends the process soon. An interrupted compilation first saves its
    // results.
    const LeaveOnStop leave(stop, [&] {
      trace.discard();
      if (wish.peers != nullptr) wish.peers->leave();  // this rank is stopped, not lost
      wish.leave();
    });
    if (wish.is_first())
      write_graph_file(wish.graph_file, resolve(wanted, components), *components.model);
    runner = std::make_unique<Runner>(wanted, clock, components, trace.trace(), stop);
  }

  Runner::Components components;
  const RunConfig wanted;
  SteadyClock clock;
  TraceFile trace;
  std::unique_ptr<Runner> runner;
};

int run_with_table(const RunConfig& asked, const Arguments& wish, std::stop_token stop) {
  PreparedRun prepared(asked, wish, stop);
  Runner& runner = *prepared.runner;
  fmt::print(stderr, "{}\n", resolved_line(runner.config(), wish.verbose));
  fmt::print("{}", report::format_header(report::header_of(runner.config(), prepared.components,
                                                           runner.examples_per_epoch())));
  report::StepTable table(runner.config(), stdout);
  const RunResult result = watched(runner, prepared.clock, wish, &table, std::move(stop));
  const int code = keep(result, wish);
  const bool has_total = !evaluates_while_training(prepared.wanted) && result.img_per_s > 0;
  fmt::print("{}{}", report::format_end(result), has_total ? format_ranks(result) : "");
  std::fflush(stdout);
  fmt::print(stderr, "{}", report::run_summary(result));  // parsers read the other stream
  print_outcome(result);
  prepared.trace.write();
  return code;
}

/// Runs without the table.
RunResult run_silently(const RunConfig& asked, const Arguments& wish, std::stop_token stop) {
  PreparedRun prepared(asked, wish, stop);
  RunResult result = watched(*prepared.runner, prepared.clock, wish, nullptr, std::move(stop));
  prepared.trace.write();
  return result;
}

/// Configuration errors become a result too, so that readers of the JSON find the reason there.
int run_to_json(const RunConfig& wanted, const Arguments& wish, std::stop_token stop) {
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

int run_to_report(const RunConfig& wanted, const Arguments& wish, std::stop_token stop) {
  const report::ReportEntry& report = find_entry(report::report_table(), wish.format);
  const RunResult result = run_silently(wanted, wish, std::move(stop));
  const int code = keep(result, wish);
  report.write(sweep_of({result}, read_environment()), document::style_of(STDOUT_FILENO),
               std::cout);
  std::cout.flush();
  print_outcome(result);
  return code;
}

/// A rank other than 0 prints only errors.
int run_beside(const RunConfig& wanted, Arguments wish, std::stop_token stop) {
  wish.trace.file.clear();
  wish.trace.profile.clear();
  wish.watch = {};
  const RunResult result = run_silently(wanted, wish, std::move(stop));
  if (result.exit_code != 0 && result.exit_code != 130) print_outcome(result);
  return result.exit_code;
}

int run_wanted(const RunConfig& config, const Arguments& wish, std::stop_token stop) {
  if (wish.processes != nullptr && wish.processes->launch().rank > 0) {
    return run_beside(config, wish, std::move(stop));
  }
  if (wish.json) return run_to_json(config, wish, std::move(stop));
  if (!wish.format.empty()) return run_to_report(config, wish, std::move(stop));
  return run_with_table(config, wish, std::move(stop));
}

/// Runs in one of several processes. If one process fails, all end.
int run_together(cluster::Processes& processes, const RunConfig& config, const Arguments& wish,
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

/// Runs a worker of a run with parameter servers.
int run_as_worker(const ClusterArguments& cluster, const RunConfig& config, Arguments& wish,
                  const std::stop_token& stop) {
  SteadyClock clock;
  const std::unique_ptr<cluster::ServerConnection> servers =
      join_servers(cluster, config, clock, stop);
  const std::unique_ptr<cluster::Processes> processes = cluster::make_worker_processes(*servers);
  wish.servers = servers.get();
  wish.processes = processes.get();
  return run_together(*processes, config, wish, stop);
}

std::vector<Flag> output_flags(Arguments& wish) {
  const FlagGroup flag{"Output"};
  std::vector<std::string> reports;
  for (const report::ReportEntry* report : report::report_table().entries)
    reports.emplace_back(report->name);
  const auto set_steps = [&wish](const std::string& text) {
    wish.trace.steps = parse_integer(text, "--trace-steps");
    if (wish.trace.steps >= 1) return;
    throw ConfigError(
        fmt::format("--trace-steps is {}; expected a whole number of at least 1", text));
  };
  return {
      flag.text("trace_file",
                "file for a timeline of the first measured steps, for Perfetto or "
                "chrome://tracing; default: none",
                wish.trace.file),
      flag.text(
          "graph_file",
          "file for the model's graph, by its suffix: .dot (Graphviz), .json or .txt; default: "
          "none",
          wish.graph_file),
      flag.text("profile_file",
                "file for the time by type of operation and by operation in the first measured "
                "steps; default: none",
                wish.trace.profile, "tfprof_file"),
      flag("trace_steps",
           "steps in the timeline and the profile; above 200 a recorded program is one span", "50",
           set_steps),
      flag.boolean("json", "print one JSON object instead of the table", wish.json),
      flag.boolean("verbose",
                   "print the value of every flag; default: those that differ from the "
                   "defaults",
                   wish.verbose),
      flag.text("format", "print this report at the end instead of the table: " + join(reports),
                wish.format),
      flag.text("out",
                "file for the JSON object, also if the run is stopped or fails; default: none",
                wish.out),
      flag("progress_fd", "file descriptor for lines of JSON about the progress; default: none", "",
           [&](const std::string& text) { wish.watch.progress_fd = parse_progress_fd(text); }),
      flag("prometheus_port",
           "port for http://127.0.0.1:PORT/metrics (Prometheus) during the run; default: none", "",
           [&](const std::string& text) {
             wish.watch.prometheus_port = parse_port(text, "--prometheus-port");
           })};
}

/// tensorpack's name for its producer, which feeds a run and has no result.
constexpr std::string_view kProducer = "zmq-serve";

/// Runs `penstock serve` with the batches of `config`, as tensorpack's producer sends them: the
/// same batches repeatedly, with --prefetch batches waiting. Options of zmq-serve are flags of
/// `serve`.
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
  Arguments wish;
  wish.leave = invocation.leave;
  apply_like_of(config, invocation.arguments);
  ClusterArguments cluster;
  if (!parse_flags(
          {.verb = "run",
           .summary = "Runs one configuration once and prints its rate. A line below the rate that "
                      "begins with '#' says why the rate is in doubt.",
           .common =
               "loader loop fake-location model device data-dir batch-size num-gpus num-batches "
               "feeder-threads trace-file json out verbose",
           .examples = "run --feeder queue --data-dir my/images --device emulated:img_per_s=1000\n"
                       "run --feeder gpu --model tiny_cnn --device cpu --num-batches 20\n"
                       "run --feeder zmq-consume:endpoint=tcp://127.0.0.1:5555 --batch-size 64"},
          join_flags(run_flags(config), loader_flags(config), output_flags(wish),
                     cluster_flags(cluster)),
          invocation.arguments)) {
    return 0;
  }
  // Parameter servers and their workers need devices whose gradients are in host memory.
  if (cluster.job != ClusterArguments::Job::none && config.device == kAutoDevice) {
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
  // The table is a live view; a changing line would break it.
  wish.watch.terminal = document::is_terminal(STDERR_FILENO) &&
                        !document::same_terminal(STDOUT_FILENO, STDERR_FILENO);
  check_cluster(cluster, config);
  if (cluster.job == ClusterArguments::Job::ps) return serve_job(cluster, config, invocation.stop);
  const auto find = [](const char* name) { return std::getenv(name); };
  const std::optional<cluster::Launch> launch = cluster::read_launch(find);
  const bool is_first = cluster.task_index == 0 && (!launch || launch->rank == 0);
  if (is_first) {
    if (!chosen.empty()) fmt::print(stderr, "penstock: {}\n", chosen);
    say_unused_flags(std::span(&config, 1), invocation.arguments);
  }
  if (cluster.job == ClusterArguments::Job::worker) {
    return run_as_worker(cluster, config, wish, invocation.stop);
  }
  if (!spans_processes(config, launch)) return run_wanted(config, wish, invocation.stop);
  SteadyClock clock;
  PeerWatch peers(config, *launch, find);
  // The launcher ends all ranks after a loss or an interruption. A rank that stops because of that
  // is not lost.
  const std::stop_callback leaving(invocation.stop, [&peers] { peers.leave(); });
  const std::unique_ptr<cluster::Processes> processes = join_run(config, launch, clock);
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
