// SPDX-License-Identifier: Apache-2.0
// penstock selftest: compares A with A on this machine; how often a false difference is reported,
// and how small a difference could be detected.
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "bench/cli.h"
#include "bench/config/flags.h"
#include "bench/isolate/isolate_progress.h"
#include "bench/isolate/noise.h"
#include "bench/isolate/selftest.h"
#include "bench/run/processes/launch_flags.h"
#include "bench/sweep/child_run.h"
#include "bench/sweep/result_folder.h"
#include "bench/sweep/sweep_runner.h"
#include "dataflow/error.h"
#include "dataflow/machine/output_file.h"

namespace penstock {
namespace {

constexpr Nanoseconds kRunTimeout = std::chrono::minutes(1);

struct Arguments {
  Nanoseconds budget = std::chrono::seconds(45);
  std::int32_t pairs = 200;
  double margin = 0.01;
  std::string out = "out/selftest";
  bool verbose = false;
  bool alone = false;
};

std::vector<Flag> selftest_flags(Arguments& arguments) {
  const FlagGroup flag{"Selftest"};
  return {flag.time("budget", "time for the test, such as 45s or 5min", "45s", arguments.budget),
          flag.count("pairs", "pairs of runs per configuration, at most", arguments.pairs,
                     isolate::SelftestFinding::kGroup, 100'000),
          flag.percent("margin", "smallest difference that matters, in percent", arguments.margin),
          flag.text("out", "folder for selftest.json and the runs", arguments.out),
          flag.boolean("verbose", "print the output of the runs", arguments.verbose),
          alone_flag(arguments.alone)};
}

SweepPlan sweep_of(const Arguments& arguments, const std::vector<isolate::SelftestCase>& cases) {
  SweepPlan plan;
  for (const isolate::SelftestCase& each : cases) {
    plan.configurations.insert(plan.configurations.end(), 2, each.config);
  }
  plan.repetitions = arguments.pairs;
  plan.time_budget = arguments.budget;
  plan.seed = plan.configurations.front().seed;
  plan.enough = [](const SweepResult& sweep) { return has_failures(sweep); };
  return plan;
}

int exit_code(const isolate::Selftest& test, bool saved) {
  if (!saved || has_failures(test.sweep)) return 6;
  for (const isolate::SelftestFinding& finding : test.findings) {
    if (finding.pairs < isolate::SelftestFinding::kGroup || isolate::is_alarming(finding)) return 7;
  }
  return 0;
}

bool write_file(const isolate::Selftest& test, const ResultFolder& folder) {
  try {
    replace_file(folder.path() / "selftest.json", isolate::to_json(test).dump(1) + "\n");
    return true;
  } catch (const DataError& error) {
    fmt::print(stderr, "penstock: {}\n", error.what());
    return false;
  }
}

int selftest(const Arguments& arguments, const Invocation& invocation) {
  ChildRunOptions options{
      .program = invocation.program, .timeout = kRunTimeout, .show_stderr = arguments.verbose};
  const std::vector<isolate::SelftestCase> cases = isolate::selftest_cases();
  SweepPlan plan = sweep_of(arguments, cases);
  plan.command = command_text("selftest", invocation.arguments);
  SteadyClock clock;
  const ResultFolder folder(arguments.out);
  isolate::Selftest test;
  test.margin = arguments.margin;
  bool saved = false;
  {
    isolate::IsolateProgress progress(folder, arguments.verbose);
    options.on_progress = [&](const Progress& now) { progress.running(now); };
    progress.phase_begins("block", to_seconds(arguments.budget));
    isolate::NoiseReading before;
    plan.on_round = [&](std::int32_t round, bool ended) {
      const isolate::NoiseReading now =
          isolate::read_noise(clock.now(), isolate::own_cpu_seconds());
      if (ended) {
        test.noise.push_back(isolate::noise_between(before, now, static_cast<std::size_t>(round)));
      }
      before = now;
    };
    SweepRunner runner(std::move(plan), runs_in_children(options), clock);
    test.sweep = runner.run(progress, invocation.stop);
    saved = progress.saved();
  }
  isolate::judge_selftest(test, cases);
  saved = write_file(test, folder) && saved;
  isolate::write_selftest_text(test, std::cout);
  fmt::print("{}{}", saved ? "Every step time and the machine: " : "",
             files_line(folder, {"selftest.json"}, saved));
  return exit_code(test, saved);
}

int run(const Invocation& invocation) {
  Arguments arguments;
  if (!parse_flags(
          {.verb = "selftest",
           .summary =
               "Measures the same configuration against itself: how often a verdict is wrong "
               "on this machine, and how small an effect it can detect.",
           .examples = "selftest\nselftest --budget 5min\nselftest --pairs 20 --out out/today"},
          selftest_flags(arguments), invocation.arguments)) {
    return 0;
  }
  expect_one_process("selftest", arguments.alone);
  return selftest(arguments, invocation);
}

}  // namespace

extern constinit const VerbEntry selftest_verb{
    .name = "selftest",
    .summary = "measure one configuration against itself, to test the verdicts on this machine",
    .run = run,
};

}  // namespace penstock
