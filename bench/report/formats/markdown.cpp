// SPDX-License-Identifier: Apache-2.0
// results.md: the table for a README, an issue or a chat.
#include <string>
#include <utility>

#include "bench/document/document.h"
#include "bench/record/rank_skew.h"
#include "bench/record/rate_unit.h"
#include "bench/record/report_text.h"
#include "bench/record/step_parts.h"
#include "bench/report/pages/sweep_costs.h"
#include "bench/report/report.h"

namespace penstock::report {
namespace {

void write(const SweepResult& sweep, const document::TerminalStyle&, std::ostream& out) {
  std::vector<std::string> facts, places;
  for (const Row* row : rows_by_cost(sweep)) facts.push_back(cost_sentence(sweep, *row));
  for (std::string& note : notes_of(sweep)) facts.push_back(std::move(note));
  for (const std::string& warning : sweep.warnings) facts.push_back("Warning: " + warning + ".");
  for (std::string& line : how_to_read(sweep)) facts.push_back(std::move(line));
  facts.push_back(headline(sweep));
  for (const auto& [name, value] : environment_lines(sweep)) places.push_back(name + ": " + value);
  document::write_markdown(
      in_unit_of(sweep,
                 {document::Paragraphs{answer_of(sweep)}, text_table(sweep), parts_table(sweep),
                  ranks_section(sweep), document::List{.items = facts},
                  document::List{.items = places}, document::Verbatim{"command: ", sweep.command}}),
      out);
}

}  // namespace

extern constinit const ReportEntry markdown_report{
    .name = "markdown",
    .summary = "the table in Markdown",
    .file = "results.md",
    .write = write,
};

}  // namespace penstock::report
