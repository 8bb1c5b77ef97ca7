// SPDX-License-Identifier: Apache-2.0
// penstock scale: runs one configuration on 1, 2, 4, ... ranks, on one or many machines, through
// mpirun. Writes tfperftest's files, and takes its flags if they have a meaning here.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <stop_token>
#include <string>
#include <vector>

#include "bench/cli.h"
#include "bench/config/flags.h"
#include "bench/config/run_flags.h"
#include "bench/config/unused_flags.h"
#include "bench/document/terminal.h"
#include "bench/record/machine.h"
#include "bench/scaling/launch/hosts.h"
#include "bench/scaling/launch/mpirun.h"
#include "bench/scaling/launch/remote_program.h"
#include "bench/scaling/scale_runner.h"
#include "bench/scaling/scale_views.h"
#include "bench/sweep/result_folder.h"
#include "bench/verbs/device_choice.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/options.h"
#include "trainer/model.h"

namespace penstock {
namespace {

constexpr std::int64_t kMost = 65536;
/// tfperftest's `resnet` is the pre-activation network with 152 layers.
constexpr std::string_view kResnet = "resnet", kItsResnet = "resnet152_v2";

struct Arguments {
  scaling::ScalePlan plan;
  std::string hosts, remote_dir, ranks;
  std::string model;  ///< as typed, such as resnet50:64,inception3:32; empty: not typed
  std::string out = "logs";
  std::int32_t per_host = 0, most = 0;  ///< 0: not stated
};

constexpr FlagGroup flag{"Scale"};

std::vector<Flag> ladder_flags(Arguments& arguments) {
  scaling::ScalePlan& plan = arguments.plan;
  Flag most = flag.count(
      "max_gpu", "-x: largest number of ranks in 1, 2, 4, ...; default: all slots, or usable cores",
      arguments.most, 1, kMost, "x");
  Flag per_host =
      flag.count("gpu_per_machine", "-g: ranks per machine, if the host file does not say",
                 arguments.per_host, 1, kMost, "g");
  most.fallback = per_host.fallback = "";
  return {flag.text("ranks", "numbers of ranks to run, such as 1,2,6; default: 1, 2, 4, ...",
                    arguments.ranks),
          std::move(most),
          std::move(per_host),
          flag.text("hosts",
                    "-h: file of hosts (mpirun's, or lines of name and ssh alias), or a list such "
                    "as node1:2,node2:2; default: this machine",
                    arguments.hosts, "nodes_file hostfile"),
          flag.text("remote_dir",
                    "-r: folder on all hosts to copy this program to; default: it is there already",
                    arguments.remote_dir, "r"),
          flag.text("ssh", "command that reaches other machines", plan.agent),
          flag.count("repetitions", "runs per number of ranks", plan.repetitions, 1, kMost),
          flag.time("run_timeout", "how long a run may take", "10min", plan.run_timeout),
          flag.text("out", "folder for MODEL_bB.csv, .csv.ideal, .svg and .json", arguments.out),
          flag.boolean("verbose", "print the output of the runs", plan.verbose)};
}

/// The flags of `run`, except those that the ladder sets.
std::vector<Flag> scale_flags(Arguments& arguments) {
  std::vector<Flag> flags = run_flags(arguments.plan.config);
  std::erase_if(flags, [](const Flag& each) { return each.name == "num_processes"; });
  Flag& model = *std::ranges::find(flags, "model", &Flag::name);
  model.help =
      "model, or several with their batches, such as resnet50:64,inception3:32; the same as "
      "-m";
  model.set = [&arguments](const std::string& text) { arguments.model = text; };
  return join_flags(std::move(flags), ladder_flags(arguments));
}

std::vector<scaling::Host> hosts_of(const Arguments& arguments) {
  if (arguments.hosts.empty()) return {};
  std::error_code error;
  const bool is_file = arguments.hosts.find('/') != std::string::npos ||
                       std::filesystem::is_regular_file(arguments.hosts, error);
  std::vector<scaling::Host> hosts = is_file ? scaling::read_host_file(arguments.hosts)
                                             : scaling::parse_host_list(arguments.hosts);
  if (arguments.per_host == 0 && std::ranges::count(hosts, 0, &scaling::Host::slots) > 0) {
    throw ConfigError("how many ranks does a machine of {} take? Expected -g N (--gpu-per-machine)",
                      arguments.hosts);
  }
  if (arguments.per_host > 0) {
    if (std::ssize(hosts) * std::int64_t{arguments.per_host} > scaling::kMostSlots) {
      throw ConfigError(
          "-g (--gpu-per-machine) is {}, for {} machines; expected at most {} ranks in all",
          arguments.per_host, hosts.size(), scaling::kMostSlots);
    }
    for (scaling::Host& host : hosts) host.slots = arguments.per_host;
  }
  return hosts;
}

std::vector<std::int32_t> ranks_of(const Arguments& arguments) {
  if (!arguments.ranks.empty()) {
    if (arguments.most == 0) return scaling::parse_ranks(arguments.ranks);
    throw ConfigError("--ranks and -x (--max-gpu) exclude each other; keep one");
  }
  std::int32_t most = arguments.most;
  if (most == 0 && arguments.plan.hosts.empty()) most = usable_cores();
  if (most == 0) {
    for (const scaling::Host& host : arguments.plan.hosts) most += host.slots;
  }
  return scaling::doublings(most);
}

scaling::ScaleResult begin_result(const Arguments& arguments, const Invocation& invocation) {
  const RunConfig& config = arguments.plan.config;
  scaling::ScaleResult result{
      .environment = read_environment(),
      .command = command_text("scale", invocation.arguments),
      .model = config.model,
      .requested_model = arguments.model,
      .batch_size = config.batch_size,
      .what = fmt::format("feeder {}, update {}, device {}", config.fake_location,
                          config.variable_update, config.device),
      .repetitions = arguments.plan.repetitions,
      .rungs = scaling::make_rungs(arguments.plan),
      .notes = {}};
  const std::int32_t most = arguments.plan.ranks.back(), cores = result.environment.usable_cores;
  if (arguments.plan.hosts.empty() && most > cores) {
    result.notes.push_back(
        fmt::format("{} ranks share {} usable cores and take turns on them", most, cores));
  }
  return result;
}

/// The plan of one of tfperftest's models, MODEL or MODEL:BATCH. Without BATCH it has that of
/// --batch-size, or the model's.
Arguments with_model(Arguments arguments, const std::string& text) {
  RunConfig& config = arguments.plan.config;
  const std::size_t colon = text.find(':');
  arguments.model = text.substr(0, colon);
  config.model = arguments.model == kResnet ? std::string(kItsResnet) : arguments.model;
  const ModelEntry& model = find_entry(model_table(), config.model);
  config.model = model.name;
  if (colon != std::string::npos) {
    find_config_key("batch_size").parse(config, "-m", text.substr(colon + 1));
  }
  if (config.batch_size == 0) config.batch_size = model.batch;
  return arguments;
}

/// One plan for each model of -m. Throws ConfigError if two of them would write the same files.
std::vector<Arguments> plans_of(const Arguments& arguments) {
  if (arguments.model.empty()) {
    Arguments plan = with_model(arguments, arguments.plan.config.model);
    plan.model.clear();
    return {plan};
  }
  std::vector<Arguments> plans;
  std::istringstream models(arguments.model);
  for (std::string model; std::getline(models, model, ',');) {
    plans.push_back(with_model(arguments, model));
    const auto same = std::ranges::count_if(plans, [&](const Arguments& each) {
      return each.model == plans.back().model &&
             each.plan.config.batch_size == plans.back().plan.config.batch_size;
    });
    if (same > 1) {
      throw ConfigError("-m is '{}', which names {} with a batch of {} twice", arguments.model,
                        plans.back().model, plans.back().plan.config.batch_size);
    }
  }
  return plans;
}

/// Resolves and checks everything that can be checked before anything starts.
void complete(Arguments& arguments, const Invocation& invocation) {
  scaling::ScalePlan& plan = arguments.plan;
  if (!plan.config.train_dir.empty()) {
    throw ConfigError(
        "--train-dir is '{}': the rungs of a ladder would resume from each other's checkpoints; "
        "leave it out, or use `penstock run`",
        plan.config.train_dir);
  }
  plan.hosts = hosts_of(arguments);
  plan.ranks = ranks_of(arguments);
  plan.as_root = geteuid() == 0;
  plan.program = invocation.program;
  if (!arguments.remote_dir.empty() && plan.hosts.empty()) {
    throw ConfigError(
        "-r (--remote-dir) copies the program to hosts, and there are none; give "
        "--hosts, or leave -r out");
  }
  static_cast<void>(scaling::make_rungs(plan));
  scaling::expect_mpirun();
  scaling::expect_known(plan.hosts, plan.agent);
  plan.shared_machine =
      scaling::shared_machine(scaling::names_of_machines(plan.hosts, plan.agent, invocation.stop));
}

/// Runs the ladder of one model, and prints it. Returns false if something failed.
bool climb_one(const Arguments& arguments, const Invocation& invocation) {
  const scaling::ScalePlan& plan = arguments.plan;
  scaling::ScaleResult result = begin_result(arguments, invocation);
  scaling::ScaleProgress progress(arguments.out,
                                  plan.ranks.size() * static_cast<std::size_t>(plan.repetitions),
                                  document::is_terminal(STDERR_FILENO) && !plan.verbose);
  scaling::climb(plan, result, progress, invocation.stop);
  progress.finish();
  scaling::write_scale_text(result, std::cout);
  std::cout << fmt::format("\n{0}.csv, {0}.csv.ideal, {0}.svg, {0}.json\n",
                           (std::filesystem::path(arguments.out) / result.name()).native());
  std::cout.flush();
  return !has_failures(result) && progress.saved();
}

int run(const Invocation& invocation) {
  Arguments arguments;
  const std::vector<std::string> words = scaling::spell_out(invocation.arguments);
  scaling::ScalePlan& plan = arguments.plan;
  plan.config.device = kAutoDevice;
  plan.config.variable_update = "horovod";
  apply_like_of(plan.config, words);
  if (!parse_flags(
          {.verb = "scale",
           .summary = "Runs one configuration on 1, 2, 4, ... ranks through mpirun, and writes "
                      "tfperftest's files. It takes the flags of `penstock run`.",
           .common = "fake-location model device data-dir batch-size num-batches ranks hosts "
                     "gpu-per-machine repetitions out verbose",
           .examples = "scale --feeder host --device emulated:img_per_s=400 --ranks 1,2\n"
                       "scale --hosts node1:2,node2:2 --model resnet50 --batch-size 64\n"
                       "scale -m resnet50:64,inception3:32 --hosts node1:2 --max-gpu 2\n"
                       "scale --hosts nodes.txt --gpu-per-machine 4 --max-gpu 16 --feeder queue"},
          scale_flags(arguments), words)) {
    return 0;
  }
  scaling::refuse_nested_launch("scale");
  for (const Arguments& one : plans_of(arguments)) plan.config.model = one.plan.config.model;
  const std::string chosen = choose_devices(std::span(&plan.config, 1), words);
  if (!chosen.empty()) fmt::print(stderr, "penstock: {}\n", chosen);
  say_unused_flags(std::span(&plan.config, 1), words);
  complete(arguments, invocation);
  const FolderLock lock = lock_results(arguments.out);
  if (!arguments.remote_dir.empty()) {
    fmt::print(stderr, "penstock scale: copying the program to {} machine{}\n", plan.hosts.size(),
               plan.hosts.size() == 1 ? "" : "s");
    plan.program = scaling::copy_program(plan.program, plan.hosts, arguments.remote_dir, plan.agent,
                                         invocation.stop);
  }
  bool good = true;
  for (const Arguments& one : plans_of(arguments)) {
    if (invocation.stop.stop_requested()) break;
    good = climb_one(one, invocation) && good;
  }
  return good ? 0 : 6;
}

}  // namespace

extern constinit const VerbEntry scale_verb{
    .name = "scale",
    .summary = "measure one configuration on 1, 2, 4, ... ranks, on one machine or many",
    .run = run,
};

}  // namespace penstock
