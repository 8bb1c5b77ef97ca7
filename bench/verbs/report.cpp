// SPDX-License-Identifier: Apache-2.0
// penstock report: prints saved results in another format, or compares two of them.
#include <unistd.h>

#include <iostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "bench/analysis/cost.h"
#include "bench/cli.h"
#include "bench/document/document.h"
#include "bench/document/terminal.h"
#include "bench/record/compare.h"
#include "bench/record/rank_skew.h"
#include "bench/record/result_json.h"
#include "bench/record/saved_results.h"
#include "bench/report/report.h"
#include "bench/watch/watch_record.h"
#include "bench/watch/watch_summary.h"
#include "dataflow/entry.h"
#include "dataflow/machine/output_file.h"
#include "dataflow/options.h"

namespace penstock {
namespace {

struct Arguments {
  std::string format;  ///< empty: the format for a terminal
  std::string out;     ///< empty: standard output
  bool schema = false;
  CompareOptions compare;
};

std::string formats() {
  std::vector<std::string> names;
  for (const report::ReportEntry* report : report::report_table().entries)
    names.emplace_back(report->name);
  return join(names);
}

std::vector<Flag> report_flags(Arguments& arguments) {
  const FlagGroup flag;
  Flag format =
      flag.text("format", "output format: " + formats() + "; for compare: text, markdown, json",
                arguments.format);
  format.fallback = "table, or text";
  return {
      std::move(format),
      flag.text("out", "output file; default: standard output", arguments.out),
      flag("margin", "for compare: smallest change that matters, in percent", "1",
           [&](const std::string& text) { arguments.compare.margin = parse_margin(text); }),
      flag("allow", "for compare: settings that may differ, such as data_dir", "",
           [&](const std::string& text) { arguments.compare.allowed = parse_allowed(text); }),
      flag.text("match", "for compare: pair rows whose KEY is A before and B after, as KEY=A:B;...",
                arguments.compare.renamed),
      flag.boolean("schema", "print the JSON Schema of results.json and of `penstock run --json`",
                   arguments.schema)};
}

void put(const std::string& text, const std::string& file) {
  if (file.empty()) {
    std::cout << text << std::flush;
  } else {
    replace_file(file, text);
  }
}

/// `what` is shown, for a message.
int render_document(const document::Document& document, std::string_view what,
                    const Arguments& arguments) {
  std::ostringstream text;
  if (arguments.format == "markdown") {
    document::write_markdown(document, text);
  } else if (arguments.format.empty() || arguments.format == "table") {
    const int width = arguments.out.empty() ? document::style_of(STDOUT_FILENO).width : 0;
    document::write_text(document, text, static_cast<std::size_t>(width));
  } else {
    throw ConfigError("--format is '{}'; expected table or markdown for {}", arguments.format,
                      what);
  }
  put(text.str(), arguments.out);
  return 0;
}

constexpr const char* kWatch = "a record of `penstock watch`";

/// One table of the ranks in several records.
int render_together(const std::vector<std::string>& files, const Arguments& arguments) {
  std::vector<watch::WatchRecord> watched;
  std::vector<RunResult> runs;
  for (const std::string& file : files) {
    if (auto record = watch::read_record(file)) {
      watched.push_back(std::move(*record));
      continue;
    }
    for (Row& row : read_saved_results(file).rows) {
      for (Repetition& repetition : row.repetitions) {
        RunResult& run = runs.emplace_back(std::move(repetition.result));
        if (run.ranks.empty()) {
          throw ConfigError(
              "'{}' has no ranks; expected one file, or several records of ranks: of `penstock "
              "watch`, or of a run of several processes with `--out FILE{{rank}}.json`",
              file);
        }
      }
    }
  }
  if (!watched.empty() && !runs.empty()) {
    throw ConfigError(
        "'{}' and others are records of `penstock watch`, and others are not; give "
        "records of one training",
        files.front());
  }
  if (!watched.empty()) {
    return render_document(watch::document_of(watch::join_records(std::move(watched))), kWatch,
                           arguments);
  }
  return render_document({ranks_section(runs)}, "several records", arguments);
}

int render(const std::string& file, const Arguments& arguments) {
  const std::string name = arguments.format.empty() ? "table" : arguments.format;
  if (const auto record = watch::read_record(file)) {
    return render_document(watch::document_of(*record), kWatch, arguments);
  }
  const report::ReportEntry& report = find_entry(report::report_table(), name);
  SweepResult sweep = read_saved_results(file);
  if (sweep.steady) analysis::restate(sweep);
  std::ostringstream text;
  report.write(
      sweep, arguments.out.empty() ? document::style_of(STDOUT_FILENO) : document::TerminalStyle{},
      text);
  put(text.str(), arguments.out);
  return 0;
}

int compare_files(const std::string& before, const std::string& after, const Arguments& arguments) {
  const Comparison comparison =
      compare(read_saved_results(before), read_saved_results(after), arguments.compare);
  std::ostringstream text;
  write_comparison(comparison, before, after, arguments.format.empty() ? "text" : arguments.format,
                   text);
  put(text.str(), arguments.out);
  return exit_code_of(comparison);
}

int run(const Invocation& invocation) {
  Arguments arguments;
  std::vector<std::string> words;
  if (!parse_flags(
          {.verb = "report",
           .summary =
               "Shows saved results, or what changed between two. A FILE is the folder of a sweep, "
               "its results.json, what `run --json` printed, or a record of `watch`; records of "
               "ranks become one table.",
           .examples = "report out\n"
                       "report out --format markdown --out results.md\n"
                       "report node1/watch.json node2/watch.json\n"
                       "report compare out/before out/after",
           .arguments = "FILE ... | compare BEFORE AFTER | --schema"},
          report_flags(arguments), invocation.arguments, &words)) {
    return 0;
  }
  if (arguments.schema && words.empty()) {
    put(results_schema().dump(2) + "\n", arguments.out);
    return 0;
  }
  const bool compares = !words.empty() && words.front() == "compare";
  if (compares ? words.size() != 3 : words.empty()) {
    throw ConfigError(
        "`penstock report {}` got {} file{}; expected one to show, or `compare BEFORE AFTER`",
        join(words, " "), words.size() - (compares ? 1 : 0), words.size() == 2 ? "" : "s");
  }
  if (compares) return compare_files(words[1], words[2], arguments);
  return words.size() == 1 ? render(words[0], arguments) : render_together(words, arguments);
}

}  // namespace

extern constinit const VerbEntry report_verb{
    .name = "report",
    .summary = "show saved results in another form, or what changed between two",
    .run = run,
};

}  // namespace penstock
