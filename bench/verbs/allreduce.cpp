// SPDX-License-Identifier: Apache-2.0
// penstock allreduce: measures the exchange of a model's gradients by every algorithm, without
// model and input.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>

#include "bench/cli.h"
#include "bench/config/exchange_rules.h"
#include "bench/config/flags.h"
#include "bench/config/training_rules.h"
#include "bench/record/environment.h"
#include "bench/record/exit_code.h"
#include "bench/record/machine.h"
#include "bench/record/result_json.h"
#include "bench/run/processes/launch_flags.h"
#include "bench/run/processes/process_run.h"
#include "bench/scaling/exchange/exchange_report.h"
#include "bench/scaling/exchange/exchange_run.h"
#include "bench/scaling/exchange/exchange_ways.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/options.h"
#include "trainer/model.h"

namespace penstock {
namespace {

constexpr std::int64_t kMostRanks = 256;
constexpr std::int64_t kMostIterations = 1'000'000;
/// The most memory of the machine for the ranks' gradients and receive buffers.
constexpr double kMostMemory = 0.8;

struct Arguments {
  std::string model = "resnet50";
  scaling::ExchangePlan plan{.ranks = 2, .warmup = 5, .iterations = 20};
  scaling::ExchangeArguments exchange{.local_ranks = 0};
  RunConfig buckets;  ///< the keys of it that decide how gradients are packed
  bool json = false;
};

/// The keys of a run that decide how gradients are packed.
constexpr std::string_view kBucketKeys[] = {"first_bucket_mib", "bucket_mib", "gradient_repacking",
                                            "agg_small_grads_max_bytes",
                                            "agg_small_grads_max_group"};

constexpr FlagGroup flag{"Allreduce"};

std::vector<Flag> allreduce_flags(Arguments& arguments) {
  scaling::ExchangePlan& plan = arguments.plan;
  scaling::ExchangeArguments& exchange = arguments.exchange;
  const auto set_timeout = [&](const std::string& text) {
    exchange.timeout = plan.patience = parse_duration(text, "--timeout");
    if (exchange.timeout > Nanoseconds::zero()) return;
    throw ConfigError("--timeout is {}; expected a time above 0, such as 90s", text);
  };
  const auto set_wire = [&](const std::string& text) {
    exchange.wire = parse_wire_format(text, "--wire");
  };
  std::vector<Flag> flags{
      flag.count("ranks", "ranks, as threads of this process; under mpirun or srun, its processes",
                 plan.ranks, 2, kMostRanks, "num_gpus"),
      flag.count("num_iters", "timed iterations per algorithm", plan.iterations, 1,
                 kMostIterations),
      flag.count("num_warmup", "warm-up iterations per algorithm", plan.warmup, 0, kMostIterations),
      flag.count("seed", "seed of the order in which algorithms take turns", plan.seed, 0,
                 std::int64_t{1} << 62),
      flag("timeout", "how long a rank may wait for another, such as 90s", "60s", set_timeout),
      flag.text("model", "model whose gradients are exchanged, see `penstock list model`",
                arguments.model),
      flag.text("algorithm",
                "algorithms: all, or a list of shared-memory and those of `penstock list "
                "all-reduce`; processes also have mpi and mpi-nonblocking",
                exchange.algorithms),
      flag("wire",
           "format of gradients while they are exchanged, except by MPI: fp32, fp16 or bf16",
           "fp32", set_wire, "gradient_wire"),
      flag.text("all_reduce_spec",
                "algorithm by gradient size, such as pscpu:32k:xring#2; compared with "
                "shared-memory if alone",
                exchange.all_reduce_spec),
      flag.count("local_ranks", "ranks per group in hierarchical algorithms; 0: two groups",
                 exchange.local_ranks, 0, kMostRanks),
      flag.boolean("json", "print one JSON object instead of the table", arguments.json)};
  for (const std::string_view name : kBucketKeys) {
    const ConfigKey& key = find_config_key(name);
    flags.push_back(flag(std::string(name), std::string(key.help), key.get(arguments.buckets),
                         [&](const std::string& text) { key.set(arguments.buckets, text); }));
  }
  return flags;
}

bool shares_host(const cluster::Processes& processes) {
  return processes.launch().local_size == processes.launch().size;
}

void refuse_too_large(const Arguments& arguments, const Environment& environment) {
  const std::vector<std::size_t>& buckets = arguments.plan.buckets;
  const std::size_t elements = std::accumulate(buckets.begin(), buckets.end(), std::size_t{0});
  const std::size_t largest = std::ranges::max(buckets);
  const double bytes =
      static_cast<double>((elements + largest) * sizeof(float)) * arguments.plan.ranks;
  const double most = kMostMemory * static_cast<double>(environment.memory_bytes);
  if (bytes <= most) return;
  throw ConfigError(
      "--ranks is {}: they need {:.1f} GiB of memory for the gradients of {}; expected at most "
      "{:.1f} GiB on this machine; give fewer ranks or a smaller model",
      arguments.plan.ranks, bytes / 0x1p30, arguments.model, most / 0x1p30);
}

/// Fills in defaults, and refuses what cannot be measured.
void complete(Arguments& arguments, const Invocation& invocation, const Environment& environment) {
  const cluster::Processes* const processes = arguments.exchange.processes;
  if (processes != nullptr) {
    const cluster::Launch& launch = processes->launch();
    if (is_typed("ranks", invocation.arguments) && arguments.plan.ranks != launch.size) {
      throw ConfigError("--ranks is {}, and {} started {} processes; leave it out",
                        arguments.plan.ranks, launch.launcher, launch.size);
    }
    arguments.plan.ranks = launch.size;
  }
  const ModelEntry& model = find_entry(model_table(), arguments.model);
  arguments.model = model.name;
  const std::vector<std::size_t> sizes =
      scaling::gradient_sizes(build_graph(model, model.image, model.classes));
  if (sizes.empty()) {
    throw ConfigError(
        "--model is {}, which has no gradients to exchange; expected a model with weights, such as "
        "resnet50",
        arguments.model);
  }
  arguments.plan.buckets = scaling::bucket_sizes(sizes, bucket_limits(arguments.buckets));
  if (arguments.exchange.local_ranks == 0) {
    arguments.exchange.local_ranks = ranks_of_a_group(
        arguments.plan.ranks,
        processes == nullptr ? arguments.plan.ranks : processes->launch().local_size);
  }
  arguments.exchange.local_ranks = std::min(arguments.exchange.local_ranks, arguments.plan.ranks);
  if (!arguments.exchange.all_reduce_spec.empty() && !is_typed("algorithm", invocation.arguments)) {
    arguments.exchange.algorithms =
        processes == nullptr || shares_host(*processes) ? scaling::kSharedMemory : scaling::kMpi;
  }
  refuse_too_large(arguments, environment);
}

std::vector<std::string> notes_of(const Arguments& arguments, const Environment& environment) {
  std::vector<std::string> notes = warnings_of(environment);
  const cluster::Processes* const processes = arguments.exchange.processes;
  const std::int32_t here =
      processes == nullptr ? arguments.plan.ranks : processes->launch().local_size;
  // A launcher that binds ranks gives each rank separate cores; a rank sees only its cores.
  const bool bound = processes != nullptr && is_bound_to_processors();
  if (!bound && here > environment.usable_cores) {
    notes.push_back(fmt::format("{} ranks share {} usable cores and take turns on them", here,
                                environment.usable_cores));
  }
  return notes;
}

scaling::ExchangeReport measure(const Arguments& arguments, const Invocation& invocation,
                                const Environment& environment, Clock& clock) {
  std::vector<scaling::ExchangeWay> ways = scaling::exchange_ways(arguments.exchange);
  ways.push_back(scaling::memory_bound_way());
  cluster::Processes* const processes = arguments.exchange.processes;
  scaling::ExchangeReport report{.command = command_text("allreduce", invocation.arguments),
                                 .model = arguments.model,
                                 .plan = arguments.plan,
                                 .ranks_are = processes == nullptr ? "threads" : "processes",
                                 .local_ranks = arguments.exchange.local_ranks,
                                 .notes = notes_of(arguments, environment)};
  for (const scaling::ExchangeWay& way : ways) {
    report.costs.emplace_back();
    if (way.plan) {
      report.costs.back() = scaling::exchange_cost(way, arguments.plan.buckets,
                                                   arguments.plan.ranks, report.local_ranks);
    }
  }
  if (processes == nullptr || processes->launch().rank == 0) {
    fmt::print(
        stderr,
        "penstock allreduce: {} algorithms take turns, {} times each; Ctrl-C ends it with what "
        "was measured\n",
        ways.size() - 1, arguments.plan.warmup + arguments.plan.iterations);
  }
  report.times =
      scaling::measure_exchanges(arguments.plan, ways, clock, invocation.stop, processes);
  report.stopped = std::ranges::any_of(report.times, [&](const scaling::WayTimes& times) {
    return std::ssize(times.seconds) < arguments.plan.iterations;
  });
  return report;
}

void print(const scaling::ExchangeReport& report, const Environment& environment, bool as_json) {
  if (as_json) {
    nlohmann::ordered_json json = to_json(report);
    json["environment"] = to_json(environment);
    fmt::print("{}\n", json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  } else {
    scaling::write_exchange_text(report, std::cout);
    std::cout.flush();
  }
  std::fflush(stdout);
}

void measure_and_print(Arguments& arguments, const Invocation& invocation, Clock& clock) {
  const Environment environment = read_environment();
  complete(arguments, invocation, environment);
  const scaling::ExchangeReport report = measure(arguments, invocation, environment, clock);
  const cluster::Processes* const processes = arguments.exchange.processes;
  if (processes == nullptr || processes->launch().rank == 0) {
    print(report, environment, arguments.json);
  }
}

/// Measures in one of several processes. If one process fails, all end.
int run_together(Arguments& arguments, const Invocation& invocation, Clock& clock) {
  cluster::Processes& processes = *arguments.exchange.processes;
  int code = 0;
  try {
    check_alike(processes, describe(without_rank(invocation.arguments)));
    measure_and_print(arguments, invocation, clock);
  } catch (const std::exception& error) {
    fmt::print(stderr, "penstock: rank {}: {}\n", processes.launch().rank, error.what());
    code = exit_code_of(std::current_exception());
  }
  if (invocation.stop.stop_requested()) processes.exit_stopped(code);
  if (code != 0) processes.abort(code);
  return code;
}

int run(const Invocation& invocation) {
  Arguments arguments;
  LaunchArguments launched;
  if (!parse_flags(
          {.verb = "allreduce",
           .summary = "Measures how long ranks take to add up the gradients of a model, without "
                      "training and input, by several algorithms in turns.",
           .common = "model ranks algorithm num-iters wire bucket-mib json",
           .examples = "allreduce --model resnet50 --ranks 2\n"
                       "allreduce --model vgg16 --algorithm ring,tree --wire fp16\n"
                       "launch -np 4 -- allreduce --algorithm mpi,ring"},
          join_flags(allreduce_flags(arguments), launch_flags(launched)), invocation.arguments)) {
    return 0;
  }
  SteadyClock clock;
  const std::optional<cluster::Launch> launch =
      find_launch(launched, [](const char* name) { return std::getenv(name); });
  if (launch && launch->size > 1) {
    const std::unique_ptr<cluster::Processes> processes =
        cluster::join_processes(*launch, clock, cluster::Processes::kRendezvous, invocation.stop);
    arguments.exchange.processes = processes.get();
    return run_together(arguments, invocation, clock);
  }
  measure_and_print(arguments, invocation, clock);
  return 0;
}

}  // namespace

extern constinit const VerbEntry allreduce_verb{
    .name = "allreduce",
    .summary = "measure the exchange of a model's gradients alone, by every algorithm",
    .run = run,
};

}  // namespace penstock
