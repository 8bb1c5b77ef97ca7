// SPDX-License-Identifier: Apache-2.0
// penstock allreduce: the exchange of a model's gradients alone, without model and input, by every
// algorithm.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <numeric>
#include <string>
#include <utility>

#include "bench/cli.h"
#include "bench/command_text.h"
#include "bench/environment.h"
#include "bench/exchange/exchange_report.h"
#include "bench/exchange/exchange_run.h"
#include "bench/exchange/exchange_ways.h"
#include "bench/exchange/gradient_buckets.h"
#include "bench/result_json.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/options.h"
#include "trainer/model.h"

namespace penstock {
namespace {

constexpr std::int64_t kMostRanks = 256;
constexpr std::int64_t kMostIterations = 1'000'000;
/// Of the machine's memory, for the ranks' gradients and what they receive.
constexpr double kMostMemory = 0.8;

struct Wanted {
  std::string model = "resnet50";
  ExchangePlan plan{.ranks = 2, .warmup = 5, .iterations = 20};
  ExchangeWish wish{.local_ranks = 0};
  double bucket_mib = 25;
  bool json = false;
};

std::int64_t whole_number(const std::string& text, std::string_view flag, std::int64_t least,
                          std::int64_t most) {
  const std::int64_t number = parse_integer(text, flag);
  if (number < least || number > most) {
    throw ConfigError(
        fmt::format("{} is {}; expected a whole number from {} to {}", flag, text, least, most));
  }
  return number;
}

Flag flag(std::string name, std::string help, std::string fallback,
          std::function<void(const std::string&)> set, std::string aliases = "") {
  return {.name = std::move(name),
          .aliases = std::move(aliases),
          .help = std::move(help),
          .fallback = std::move(fallback),
          .set = std::move(set),
          .group = "Allreduce"};
}

std::vector<Flag> measuring_flags(Wanted& wanted) {
  ExchangePlan& plan = wanted.plan;
  std::vector<Flag> flags;
  flags.push_back(flag(
      "ranks", "ranks that exchange, as threads of this process", "2",
      [&](const std::string& text) {
        plan.ranks = static_cast<std::int32_t>(whole_number(text, "--ranks", 2, kMostRanks));
      },
      "num_gpus"));
  flags.push_back(
      flag("num_iters", "timed iterations of each algorithm", "20", [&](const std::string& text) {
        plan.iterations = whole_number(text, "--num-iters", 1, kMostIterations);
      }));
  flags.push_back(
      flag("num_warmup", "iterations of each before them", "5", [&](const std::string& text) {
        plan.warmup = whole_number(text, "--num-warmup", 0, kMostIterations);
      }));
  flags.push_back(flag(
      "seed", "of the order of algorithms in each iteration", "1", [&](const std::string& text) {
        plan.seed =
            static_cast<std::uint64_t>(whole_number(text, "--seed", 0, std::int64_t{1} << 62));
      }));
  flags.push_back(flag("timeout", "how long a rank may wait for another one, such as 90s", "60s",
                       [&](const std::string& text) {
                         wanted.wish.timeout = parse_duration(text, "--timeout");
                         if (wanted.wish.timeout > Nanoseconds::zero()) return;
                         throw ConfigError(fmt::format(
                             "--timeout is {}; expected a time above 0, such as 90s", text));
                       }));
  return flags;
}

std::vector<Flag> allreduce_flags(Wanted& wanted) {
  std::vector<Flag> flags = measuring_flags(wanted);
  flags.push_back(flag("model", "whose gradients are exchanged", wanted.model,
                       [&](const std::string& text) { wanted.model = text; }));
  flags.push_back(flag("algorithm", "all, or a list of shared-memory and those of `penstock list`",
                       "all", [&](const std::string& text) { wanted.wish.algorithms = text; }));
  flags.push_back(flag("all_reduce_spec",
                       "tf_cnn_benchmarks' choice by size, such as pscpu:32k:xring#2; alone, it is "
                       "compared with shared-memory",
                       "", [&](const std::string& text) { wanted.wish.all_reduce_spec = text; }));
  flags.push_back(
      flag("local_ranks", "ranks of a group of the hierarchical algorithms; 0: two groups", "0",
           [&](const std::string& text) {
             wanted.wish.local_ranks =
                 static_cast<std::int32_t>(whole_number(text, "--local-ranks", 0, kMostRanks));
           }));
  flags.push_back(flag("bucket_mib", "gradients that are exchanged together; 0: each alone", "25",
                       [&](const std::string& text) {
                         wanted.bucket_mib = parse_real(text, "--bucket-mib");
                         if (wanted.bucket_mib >= 0) return;
                         throw ConfigError(
                             fmt::format("--bucket-mib is {}; expected MiB, 0 or more", text));
                       }));
  flags.push_back(flag("json", "print one JSON object instead of the table", "false",
                       [&](const std::string& text) { wanted.json = parse_flag(text, "--json"); }));
  flags.back().boolean = true;
  return flags;
}

void refuse_too_large(const Wanted& wanted, const Environment& environment) {
  const std::vector<std::size_t>& buckets = wanted.plan.buckets;
  const std::size_t elements = std::accumulate(buckets.begin(), buckets.end(), std::size_t{0});
  const std::size_t largest = *std::max_element(buckets.begin(), buckets.end());
  const double bytes =
      static_cast<double>((elements + largest) * sizeof(float)) * wanted.plan.ranks;
  const double most = kMostMemory * static_cast<double>(environment.memory_bytes);
  if (bytes <= most) return;
  throw ConfigError(fmt::format(
      "--ranks is {}: they need {:.1f} GiB of memory for the gradients of {}; expected at most "
      "{:.1f} GiB on this machine; give fewer ranks or a smaller model",
      wanted.plan.ranks, bytes / 0x1p30, wanted.model, most / 0x1p30));
}

/// Resolves what was left open, and refuses what cannot be measured.
void complete(Wanted& wanted, const Invocation& invocation, const Environment& environment) {
  const ModelEntry& model = find_entry(model_table(), wanted.model);
  wanted.model = model.name;
  const std::vector<std::size_t> sizes =
      gradient_sizes(build_graph(model, model.image, model.classes));
  if (sizes.empty()) {
    throw ConfigError(
        fmt::format("--model is {}, which has no gradients to exchange; expected a model with "
                    "weights, such as resnet50",
                    wanted.model));
  }
  wanted.plan.buckets = pack_buckets(sizes, wanted.bucket_mib * 0x1p20);
  if (wanted.wish.local_ranks == 0) wanted.wish.local_ranks = (wanted.plan.ranks + 1) / 2;
  wanted.wish.local_ranks = std::min(wanted.wish.local_ranks, wanted.plan.ranks);
  if (!wanted.wish.all_reduce_spec.empty() && !is_typed("algorithm", invocation.arguments)) {
    wanted.wish.algorithms = kSharedMemory;
  }
  refuse_too_large(wanted, environment);
}

std::vector<std::string> notes_of(const Wanted& wanted, const Environment& environment) {
  std::vector<std::string> notes = warnings_of(environment);
  if (wanted.plan.ranks > environment.usable_cores) {
    notes.push_back(fmt::format("{} ranks share {} usable cores and take turns on them",
                                wanted.plan.ranks, environment.usable_cores));
  }
  return notes;
}

int run(const Invocation& invocation) {
  Wanted wanted;
  if (!parse_flags("allreduce",
                   "Measures how long ranks take to add up the gradients of a model: the exchange "
                   "alone, without model and input, by several algorithms in turns.",
                   allreduce_flags(wanted), invocation.arguments)) {
    return 0;
  }
  const Environment environment = read_environment();
  complete(wanted, invocation, environment);
  const std::vector<ExchangeWay> ways = exchange_ways(wanted.wish);
  ExchangeReport report{.command = command_text("allreduce", invocation.arguments),
                        .model = wanted.model,
                        .plan = wanted.plan,
                        .local_ranks = wanted.wish.local_ranks,
                        .bucket_mib = wanted.bucket_mib,
                        .notes = notes_of(wanted, environment)};
  for (const ExchangeWay& way : ways) {
    report.costs.emplace_back();
    if (way.plan) {
      report.costs.back() =
          exchange_cost(*way.plan, wanted.plan.buckets, wanted.plan.ranks, report.local_ranks);
    }
  }
  fmt::print(
      stderr,
      "penstock allreduce: {} algorithms take turns, {} times each; Ctrl-C ends it with what "
      "was measured\n",
      ways.size(), wanted.plan.warmup + wanted.plan.iterations);
  SteadyClock clock;
  report.times = measure_exchanges(wanted.plan, ways, clock, invocation.stop);
  report.stopped =
      std::any_of(report.times.begin(), report.times.end(), [&](const ExchangeTimes& times) {
        return times.seconds.size() < static_cast<std::size_t>(wanted.plan.iterations);
      });
  if (wanted.json) {
    nlohmann::ordered_json json = to_json(report);
    json["environment"] = to_json(environment);
    fmt::print("{}\n", json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  } else {
    write_exchange_text(report, std::cout);
    std::cout.flush();
  }
  return 0;
}

}  // namespace

extern constinit const VerbEntry allreduce_verb{
    .name = "allreduce",
    .summary = "the exchange of a model's gradients alone, by every algorithm",
    .run = run,
};

}  // namespace penstock
