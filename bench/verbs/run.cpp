// SPDX-License-Identifier: Apache-2.0
// penstock run: one configuration, once.
#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "bench/cli.h"
#include "bench/dataset/default_dataset.h"
#include "bench/exit_code.h"
#include "bench/result_json.h"
#include "bench/runner.h"
#include "bench/step_table.h"
#include "dataflow/error.h"

namespace penstock {
namespace {

/// Every resolved value, on one line, so that no default is silent.
std::string resolved_line(const RunConfig& config) {
  std::string text = "penstock run";
  for (const std::string& flag : to_flags(config)) text += " " + flag;
  return text;
}

void print_outcome(const RunResult& result) {
  for (const std::string& note : result.notes) fmt::print(stderr, "penstock: {}\n", note);
  if (result.status != Status::ok) {
    fmt::print(stderr, "penstock: {}: {}\n", to_string(result.status), result.reason);
  }
}

int run_with_table(const RunConfig& wanted, const Runner::Components& components,
                   std::stop_token stop) {
  ensure_data_of(wanted, *components.feeder, stop);
  SteadyClock clock;
  Runner runner(wanted, clock, components);
  const bool synthetic = !components.feeder->reads_files && !components.feeder->needs_producer;
  fmt::print(stderr, "{}\n", resolved_line(runner.config()));
  fmt::print("{}", format_header({runner.config(), synthetic,
                                  components.update->agreement == Agreement::identical,
                                  runner.examples_per_epoch()}));
  StepTable table(runner.config(), stdout);
  const RunResult result = runner.run(table, std::move(stop));
  if (evaluates_while_training(wanted)) {
    fmt::print("Done with training\n");
  } else if (result.img_per_s > 0) {
    fmt::print("{}", format_total(result.img_per_s));
  }
  std::fflush(stdout);
  print_outcome(result);
  return result.exit_code;
}

/// Configuration errors become a result too: whoever reads the JSON wants the reason there.
int run_to_json(const RunConfig& wanted, std::stop_token stop) {
  RunResult result;
  try {
    const Runner::Components components = find_components(wanted);
    ensure_data_of(wanted, *components.feeder, stop);
    SteadyClock clock;
    Runner runner(wanted, clock, components);
    RunListener silent;
    result = runner.run(silent, std::move(stop));
  } catch (const std::exception& error) {
    result.config = wanted;
    result.exit_code = exit_code_of(std::current_exception());
    result.status = result.exit_code == 3 ? Status::skipped : Status::failed;
    result.reason = error.what();
  }
  fmt::print("{}\n", to_json(result).dump());
  std::fflush(stdout);
  print_outcome(result);
  return result.exit_code;
}

int run(const Invocation& invocation) {
  RunConfig config;
  bool json = false;
  apply_like_of(config, invocation.arguments);
  std::vector<Flag> flags = run_flags(config);
  flags.push_back({.name = "json",
                   .help = "print one JSON object instead of the table",
                   .fallback = "false",
                   .boolean = true,
                   .set = [&](const std::string& text) { json = parse_flag(text, "--json"); },
                   .group = "Output"});
  if (!parse_flags("run", "Runs one configuration once and prints its rate.", flags,
                   invocation.arguments)) {
    return 0;
  }
  if (config.num_epochs > 0 && is_typed("num_batches", invocation.arguments)) {
    throw ConfigError("--num-batches and --num-epochs exclude each other; keep one");
  }
  if (json) return run_to_json(config, invocation.stop);
  return run_with_table(config, find_components(config), invocation.stop);
}

}  // namespace

extern constinit const VerbEntry run_verb{
    .name = "run",
    .summary = "one configuration, once: step table and total images/sec",
    .run = run,
};

}  // namespace penstock
