// SPDX-License-Identifier: Apache-2.0
#include "bench/report/run_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "bench/config/training_rules.h"
#include "bench/document/document.h"
#include "bench/document/terminal.h"
#include "bench/record/environment.h"
#include "bench/record/exit_code.h"
#include "bench/record/rank_skew.h"
#include "bench/record/report_text.h"
#include "bench/record/result_json.h"
#include "bench/record/saved_results.h"
#include "bench/record/saved_steps.h"
#include "bench/record/step_parts.h"
#include "bench/report/report.h"
#include "bench/report/step_table.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/machine/output_file.h"

namespace penstock::report {
namespace {

using Json = nlohmann::ordered_json;

/// The types that take most of a step.
document::Table operations_of(const RunResult& result) {
  constexpr std::size_t kShown = 8;
  document::Table table{{{"time by operation"}, {"ms/step", true}, {"%", true}, {"calls", true}},
                        {}};
  for (std::size_t i = 0; i < std::min(kShown, result.operations.size()); ++i) {
    const OperationUse& use = result.operations[i];
    table.rows.push_back({use.name, format_fixed(use.ms_per_step, 3), format_fixed(use.percent, 1),
                          format_fixed(use.calls_per_step, 1)});
  }
  return table;
}

/// What follows the table of steps, for a terminal; empty for a run without steps.
std::string run_summary(const RunResult& result) {
  std::ostringstream text;
  for (const document::Table& table :
       {parts_table(result.parts), operations_of(result), ranks_table(result.ranks, result.unit)}) {
    if (!table.rows.empty()) document::write_text(table, text);
  }
  if (result.rank_skew) {
    text << fmt::format("penstock: {}\npenstock: {}\n", sentence_of(*result.rank_skew),
                        spread_sentence(*result.rank_skew));
  }
  std::vector<std::string> peaks;
  for (const MemoryUse& use : result.memory) {
    peaks.push_back(fmt::format("{} {:.0f} MiB", use.name, use.peak_mib));
  }
  if (!peaks.empty()) text << "penstock: memory at most: " << join(peaks) << "\n";
  return text.str();
}

/// The resolved values that differ from the defaults, on one line; with `all`, every value.
std::string resolved_line(const RunConfig& config, bool all) {
  std::vector<std::string> flags = to_flags(config);
  const std::vector<std::string> defaults =
      all ? std::vector<std::string>() : to_flags(RunConfig());
  std::erase_if(flags, [&](const std::string& flag) {
    return std::ranges::find(defaults, flag) != defaults.end();
  });
  return command_text("run", flags);
}

void print_outcome(const RunResult& result) {
  for (const std::string& note : result.notes) fmt::print(stderr, "penstock: {}\n", note);
  if (result.status != Status::ok) {
    fmt::print(stderr, "penstock: {}: {}\n", to_string(result.status), result.reason);
  }
}

/// With `indent` spaces a level, or -1: on one line.
std::string json_text(const RunResult& result, int indent) {
  Json json = to_json(result);
  json["environment"] = to_json(read_environment());
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

/// Writes --out before anything is printed, because a reader of the output may end the process.
/// Prints the result even if it cannot be written. Returns the exit code.
int save(const RunResult& result, const std::string& out) try {
  if (out.empty()) return result.exit_code;
  replace_file(out, json_text(result, 1));
  std::error_code ignored;
  std::filesystem::remove(step_records_path(out), ignored);
  return result.exit_code;
} catch (const DataError& error) {
  fmt::print(stderr, "penstock: --out: {}\n", error.what());
  return result.exit_code != 0 ? result.exit_code : exit_code_of(std::current_exception());
}

void print_json(const RunResult& result) {
  fmt::print("{}\n", json_text(result, -1));
  std::fflush(stdout);
}

int run_with_table(const RunConfig& config, const RunOutput& output, const RunOptions& options,
                   const RunPeers& peers, std::stop_token stop) {
  PreparedRun run(config, options, peers, stop);
  const RunConfig& resolved = run.runner().config();
  if (!output.plain || output.verbose) {
    fmt::print(stderr, "{}\n", resolved_line(resolved, output.verbose));
  }
  fmt::print("{}", output.plain ? format_loader_header(resolved)
                                : format_header(header_of(resolved, run.components(),
                                                          run.runner().examples_per_epoch())));
  StepTable table(resolved, stdout, output.plain);
  const RunResult result = run.run(&table, std::move(stop));
  const int code = save(result, options.out);
  const bool has_total = !evaluates_while_training(result.config) && result.img_per_s > 0;
  fmt::print("{}{}", format_end(result), has_total ? format_ranks(result) : "");
  std::fflush(stdout);
  fmt::print(stderr, "{}", run_summary(result));  // parsers read the other stream
  print_outcome(result);
  run.write_trace();
  return code;
}

/// Runs without the table.
RunResult run_silently(const RunConfig& config, const RunOptions& options, const RunPeers& peers,
                       std::stop_token stop) {
  PreparedRun run(config, options, peers, stop);
  RunResult result = run.run(nullptr, std::move(stop));
  run.write_trace();
  return result;
}

/// Configuration errors become a result too, so that readers of the JSON find the reason there.
int run_to_json(const RunConfig& config, const RunOptions& options, const RunPeers& peers,
                std::stop_token stop) {
  RunResult result;
  try {
    result = run_silently(config, options, peers, std::move(stop));
  } catch (const std::exception& error) {
    result.config = config;
    result.exit_code = exit_code_of(std::current_exception());
    result.status = result.exit_code == 3 ? Status::skipped : Status::failed;
    result.reason = failure_text(error);
  }
  const int code = save(result, options.out);
  print_json(result);
  print_outcome(result);
  return code;
}

int run_to_report(const RunConfig& config, const RunOutput& output, const RunOptions& options,
                  const RunPeers& peers, std::stop_token stop) {
  const ReportEntry& report = find_entry(report_table(), output.format);
  const RunResult result = run_silently(config, options, peers, std::move(stop));
  const int code = save(result, options.out);
  report.write(sweep_of({result}, read_environment()), document::style_of(STDOUT_FILENO),
               std::cout);
  std::cout.flush();
  print_outcome(result);
  return code;
}

/// The file of a rank's trace, of rank 0 alone if its name does not differ between ranks; empty:
/// none.
std::string file_for_rank(const std::string& file, const RunPeers& peers) {
  if (file.empty() || has_place(file) || peers.processes == nullptr) return for_rank(file, peers);
  if (!peers.is_first()) return {};
  fmt::print(stderr,
             "penstock: {} gets the steps of rank 0 only; put {{rank}} into its name for a file of "
             "each rank\n",
             file);
  return file;
}

}  // namespace

std::vector<Flag> output_flags(RunOutput& output, RunOptions& options) {
  constexpr FlagGroup flag{"Output"};
  std::vector<std::string> reports;
  for (const ReportEntry* report : report_table().entries) reports.emplace_back(report->name);
  return join_flags(
      trace_flags(options.trace),
      std::vector<Flag>{
          flag.boolean("json", "print one JSON object instead of the table", output.json),
          flag.boolean("verbose",
                       "print the value of every flag; default: those that differ from the "
                       "defaults",
                       output.verbose),
          flag.text("format", "print this report at the end instead of the table: " + join(reports),
                    output.format),
          flag.text("out",
                    "file for the JSON object, also if the run is stopped or fails; default: none",
                    options.out)},
      watch_flags(options.watch));
}

void check_output(const RunOutput& output, const RunOptions& options) {
  check_places("--out", options.out);
  check_places("--trace-file", options.trace.timeline);
  check_places("--profile-file", options.trace.profile);
  if (output.json && !output.format.empty()) {
    throw ConfigError(
        "--json and --format={} exclude each other; keep one (--format json has the form of a "
        "sweep's results.json)",
        output.format);
  }
  try {
    if (!options.out.empty()) static_cast<void>(find_output(options.out));
  } catch (const DataError& error) {
    throw ConfigError("--out: {}", error.what());
  }
}

int run_and_show(const RunConfig& flags, const RunOutput& output, RunOptions options,
                 const RunPeers& peers, std::stop_token stop) {
  RunConfig config = flags;
  config.fake_location = feeder_for_rank(flags.fake_location, peers);
  const bool each_saves = has_place(options.out);
  options.out = for_rank(options.out, peers);
  options.trace.timeline = file_for_rank(options.trace.timeline, peers);
  options.trace.profile = file_for_rank(options.trace.profile, peers);
  if (!peers.is_first()) options.trace.graph.clear();  // every rank has the same
  options.keep_partial = [&output, out = options.out,
                          first = peers.is_first()](const RunResult& result) {
    static_cast<void>(save(result, out));
    if (output.json && first) print_json(result);
  };
  if (!peers.is_first()) {
    options.watch = {};
    const RunResult result = run_silently(config, options, peers, std::move(stop));
    if (each_saves) static_cast<void>(save(result, options.out));
    if (result.exit_code != 0 && result.exit_code != 130) print_outcome(result);
    return result.exit_code;
  }
  if (output.json) return run_to_json(config, options, peers, std::move(stop));
  if (!output.format.empty()) return run_to_report(config, output, options, peers, std::move(stop));
  return run_with_table(config, output, options, peers, std::move(stop));
}

}  // namespace penstock::report
