// SPDX-License-Identifier: Apache-2.0
// penstock run: runs one configuration once.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>

#include "bench/cli.h"
#include "bench/config/flags.h"
#include "bench/config/run_flags.h"
#include "bench/config/training_loop.h"
#include "bench/config/unused_flags.h"
#include "bench/document/terminal.h"
#include "bench/report/run_output.h"
#include "bench/run/processes/launch_flags.h"
#include "bench/run/processes/parameter_servers.h"
#include "bench/run/processes/process_run.h"
#include "bench/run/runner.h"
#include "bench/verbs/device_choice.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"

namespace penstock {
namespace {

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
  RunOptions options;
  report::RunOutput output;
  ClusterArguments cluster;
  LaunchArguments launched;
  apply_like_of(config, invocation.arguments);
  if (!parse_flags(
          {.verb = "run",
           .summary = "Runs one configuration once and prints its rate. A line below the rate that "
                      "begins with '#' says why the rate is in doubt.",
           .common = "loader loader-args python loop fake-location model device data-dir "
                     "batch-size num-gpus num-batches "
                     "feeder-threads trace-file json out verbose",
           .examples = "run --feeder queue --data-dir my/images --device emulated:img_per_s=1000\n"
                       "run --feeder gpu --model tiny_cnn --device cpu --num-batches 20\n"
                       "run --feeder zmq-consume:endpoint=tcp://127.0.0.1:5555 --batch-size 64"},
          join_flags(run_flags(config), loader_flags(config), report::output_flags(output, options),
                     launch_flags(launched), cluster_flags(cluster)),
          invocation.arguments)) {
    return 0;
  }
  const auto typed = [&](const char* name) { return is_typed(name, invocation.arguments); };
  // A parameter server needs no device.
  if (cluster.job == ClusterArguments::Job::ps && config.device == kAutoDevice) {
    config.device = RunConfig().device;
  }
  const std::string chosen = choose_devices(std::span(&config, 1), invocation.arguments);
  if (config.num_epochs > 0 && typed("num_batches")) {
    throw ConfigError("--num-batches and --num-epochs exclude each other; keep one");
  }
  const bool shows_result = output.json || !output.format.empty() || !options.out.empty();
  if (canonical_name(parse_component(config.fake_location).name) == kProducer && !shows_result) {
    return serve_batches(config, invocation);
  }
  output.plain = has_loader(config) && !typed("like");
  report::check_output(output, options);
  check_places_of(config.fake_location);
  options.leave = invocation.leave;
  options.may_extend =
      !typed("extend_window") && !typed("noextend_window") && !typed("no_extend_window");
  // The table is a live view; a changing line would break it.
  options.watch.terminal = document::is_terminal(STDERR_FILENO) &&
                           !document::same_terminal(STDOUT_FILENO, STDERR_FILENO);
  check_cluster(cluster, config);
  if (cluster.job != ClusterArguments::Job::none) {
    static_cast<void>(find_components(config));  // throws before tasks wait for each other
  }
  if (cluster.job == ClusterArguments::Job::ps) return serve_job(cluster, config, invocation.stop);
  const auto find = [](const char* name) { return std::getenv(name); };
  std::optional<cluster::Launch> launch;  // workers of parameter servers have addresses instead
  if (cluster.job == ClusterArguments::Job::none) launch = find_launch(launched, find);
  if (cluster.task_index == 0 && (!launch || launch->rank == 0)) {
    if (!chosen.empty()) fmt::print(stderr, "penstock: {}\n", chosen);
    say_unused_flags(std::span(&config, 1), invocation.arguments);
  }
  const auto body = [&](const RunPeers& peers) {
    return report::run_and_show(config, output, options, peers, invocation.stop);
  };
  if (cluster.job == ClusterArguments::Job::worker) {
    return run_worker(cluster, config, invocation.stop, body);
  }
  return run_launched(config, launch, find, invocation.stop, body);
}

}  // namespace

extern constinit const VerbEntry run_verb{
    .name = "run",
    .summary = "measure one configuration once: a table of steps and the total images/sec",
    .run = run,
};

}  // namespace penstock
