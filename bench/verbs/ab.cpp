// SPDX-License-Identifier: Apache-2.0
// penstock ab: runs a command in two versions of a code in turns, and says whether the second is
// slower.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "bench/ab/turns.h"
#include "bench/ab/versions.h"
#include "bench/cli.h"
#include "bench/config/flags.h"
#include "bench/record/exit_code.h"
#include "bench/sweep/result_folder.h"
#include "bench/verbs/user_command.h"
#include "dataflow/error.h"
#include "dataflow/machine/output_file.h"

namespace penstock {
namespace {

struct Arguments {
  std::string base, head = ".", base_venv, head_venv, format = "text", out;
  ab::TurnsPlan plan{.base = {}, .head = {}, .budget = std::chrono::minutes(5)};
};

std::vector<Flag> ab_flags(Arguments& arguments) {
  const FlagGroup flag{"Versions"}, turns{"Turns"}, output{"Result"};
  return {
      flag.text("base",
                "the earlier version: a folder, or a revision of the git repository here; default: "
                "HEAD, or this folder if the command names both sides",
                arguments.base),
      flag.text("head",
                "the later version; default: this folder, with changes that are not committed",
                arguments.head),
      flag.text("base_venv", "virtual environment whose programs come first in the base",
                arguments.base_venv),
      flag.text("head_venv", "the same for the head", arguments.head_venv),
      turns.text("metric",
                 "what is compared: auto (a printed `total images/sec: N`, else time), time, or a "
                 "regular expression whose group is a number in the output",
                 arguments.plan.metric.text),
      turns.boolean("lower_is_better", "a smaller number of --metric is a faster run",
                    arguments.plan.metric.lower_is_better),
      turns("margin", "smallest change that matters, in percent", "1",
            [&](const std::string& text) { arguments.plan.margin = parse_margin(text); }),
      turns.time("budget", "time for the whole comparison; three pairs are measured anyway", "5min",
                 arguments.plan.budget),
      turns.count("pairs", "pairs to measure, whatever the budget; 0: as many as are needed",
                  arguments.plan.pairs, 0, 100'000),
      output.text("format", "output: text, markdown or json", arguments.format),
      output.text("out", "folder for ab.json and ab.md", arguments.out)};
}

std::string written(const Arguments& arguments, const Comparison& comparison,
                    const std::string& format) {
  std::ostringstream text;
  const ab::TurnsPlan& plan = arguments.plan;
  if (format != "json") text << ab::verdict_of(plan, comparison) << "\n\n";
  write_comparison(comparison, plan.base.name, plan.head.name, format, text);
  return text.str();
}

int run(const Invocation& invocation) {
  const SplitArguments split = split_at_dashes(invocation.arguments);
  Arguments arguments;
  if (!parse_flags(
          {.verb = "ab",
           .summary =
               "Runs one command in two versions of a code in turns: is the later one slower? Exit "
               "code "
               "1: yes, 0: no, 7: undecided. {a|b} in the command is a in the base, b in the head.",
           .examples =
               "ab --base origin/main -- penstock run --loader train.py:make "
               "--device emulated:img_per_s=2400\n"
               "ab -- penstock run --loader '{old.py|new.py}:make' --num-batches 100\n"
               "ab --base-venv torch25 --head-venv torch26 --metric time -- python bench.py",
           .arguments = "-- COMMAND"},
          ab_flags(arguments), split.own)) {
    return 0;
  }
  if (!split.command) throw ConfigError("ab needs a command after `--`; see `penstock ab --help`");
  ab::TurnsPlan& plan = arguments.plan;
  plan.base.command = ab::words_of_side(*split.command, false);
  plan.head.command = ab::words_of_side(*split.command, true);
  ab::speed_of("", 1, plan.metric);  // refuses an expression that is none
  if (arguments.format != "text" && arguments.format != "markdown" && arguments.format != "json") {
    throw ConfigError("--format is '{}'; expected text, markdown or json", arguments.format);
  }
  for (const ab::Version* const version : {&plan.base, &plan.head}) {
    const bool here =
        !version->command.empty() && version->command[0].find('/') == std::string::npos;
    if (version->command.empty() ||
        (here && arguments.base_venv.empty() && arguments.head_venv.empty())) {
      expect_command("ab", version->command);
    }
  }
  std::optional<FolderLock> lock;
  if (!arguments.out.empty()) lock.emplace(lock_results(arguments.out));
  const bool names_sides =
      plan.base.command != plan.head.command || arguments.base_venv != arguments.head_venv;
  if (arguments.base.empty()) arguments.base = names_sides ? "." : "HEAD";
  plan.base.environment = ab::environment_of(arguments.base_venv);
  plan.head.environment = ab::environment_of(arguments.head_venv);
  const ab::Checkout base(arguments.base, invocation.stop), head(arguments.head, invocation.stop);
  plan.base.folder = base.folder();
  plan.head.folder = head.folder();
  const bool same_name = base.name() == head.name();
  plan.base.name = same_name ? "the base" : base.name();
  plan.head.name = same_name ? "the head" : head.name();
  plan.label = join(*split.command, " ");
  const Comparison comparison = ab::compare_in_turns(
      plan, invocation.stop,
      [](const std::string& line) { fmt::print(stderr, "penstock ab: {}\n", line); });
  std::cout << written(arguments, comparison, arguments.format) << std::flush;
  if (!arguments.out.empty()) {
    const std::filesystem::path folder(arguments.out);
    replace_file(folder / "ab.json", written(arguments, comparison, "json"));
    replace_file(folder / "ab.md", written(arguments, comparison, "markdown"));
  }
  return invocation.stop.stop_requested() ? exit_code_of_stop() : exit_code_of(comparison);
}

}  // namespace

extern constinit const VerbEntry ab_verb{
    .name = "ab",
    .summary = "run a command in two versions of a code in turns: is the later one slower?",
    .run = run,
};

}  // namespace penstock
