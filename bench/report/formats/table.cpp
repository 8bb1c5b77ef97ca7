// SPDX-License-Identifier: Apache-2.0
// The table on the terminal: the answer above it; notes and explanations below.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "bench/document/document.h"
#include "bench/document/terminal.h"
#include "bench/record/rank_skew.h"
#include "bench/record/rate_unit.h"
#include "bench/record/report_text.h"
#include "bench/record/step_parts.h"
#include "bench/report/pages/sweep_costs.h"
#include "bench/report/report.h"

namespace penstock::report {
namespace {

std::string coloured(const std::string& text, Status status, const document::TerminalStyle& style) {
  if (!style.colour) return text;
  const std::string_view colour = status == Status::ok       ? document::kGreen
                                  : status == Status::failed ? document::kRed
                                                             : document::kYellow;
  return fmt::format("{}{}{}", colour, text, document::kPlain);
}

void write(const SweepResult& sweep, const document::TerminalStyle& style, std::ostream& out) {
  document::Table table = text_table(sweep);
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    std::string& last = table.rows[i].back();  // no column follows that escapes would displace
    last = coloured(last, sweep.rows[i].status, style);
  }
  std::vector<std::string> facts = notes_of(sweep), warnings;
  for (std::string& line : how_to_read(sweep)) facts.push_back(std::move(line));
  facts.push_back(headline(sweep));
  for (const std::string& warning : sweep.warnings) warnings.push_back(warning + ".");
  out << "\n";
  document::write_text(
      in_unit_of(sweep, {document::Paragraphs{answer_of(sweep)}, std::move(table),
                         parts_table(sweep), ranks_section(sweep), document::List{.items = facts},
                         document::Paragraphs{.texts = warnings, .lead = "Warning: "}}),
      out, static_cast<std::size_t>(std::max(40, style.width)));
}

}  // namespace

extern constinit const ReportEntry table_report{
    .name = "table",
    .summary = "the table on the terminal",
    .write = write,
};

}  // namespace penstock::report
