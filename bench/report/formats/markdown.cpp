// SPDX-License-Identifier: Apache-2.0
// results.md: the table for a README, an issue or a chat.
#include <fmt/format.h>

#include <string>

#include "bench/record/report_text.h"
#include "bench/report/pages/sweep_costs.h"
#include "bench/report/report.h"

namespace penstock::report {
namespace {

/// Escapes text for a cell: characters that would end the cell or begin markup.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (std::string_view("|\\*_`<>[]").find(c) != std::string_view::npos) result += '\\';
    result += c == '\n' || c == '\r' ? ' ' : c;
  }
  return result;
}

void write_row(const std::vector<std::string>& cells, std::ostream& out) {
  out << "|";
  for (const std::string& cell : cells) out << " " << escaped(cell) << " |";
  out << "\n";
}

void write(const SweepResult& sweep, const ReportStyle&, std::ostream& out) {
  for (const std::string& sentence : answer_of(sweep)) out << escaped(sentence) << "\n\n";
  const std::vector<std::string> columns = text_columns(sweep);
  write_row(columns, out);
  out << "|";
  for (std::size_t column = 0; column < columns.size(); ++column) out << "---|";
  out << "\n";
  for (const Row& row : sweep.rows) write_row(text_cells(sweep, row), out);
  out << "\n";
  for (const Row* row : rows_by_cost(sweep)) {
    out << "- " << escaped(cost_sentence(sweep, *row)) << "\n";
  }
  for (const std::string& note : notes_of(sweep)) out << "- " << escaped(note) << "\n";
  for (const std::string& warning : sweep.warnings)
    out << "- Warning: " << escaped(warning) << ".\n";
  for (const std::string& line : how_to_read(sweep)) out << "- " << escaped(line) << "\n";
  out << "- " << escaped(headline(sweep)) << "\n";
  out << "\n";
  for (const auto& [name, value] : environment_lines(sweep)) {
    out << "- " << name << ": " << escaped(value) << "\n";
  }
  out << "- command: `" << sweep.command << "`\n";
}

}  // namespace

extern constinit const ReportEntry markdown_report{
    .name = "markdown",
    .summary = "the table in Markdown",
    .file = "results.md",
    .write = write,
};

}  // namespace penstock::report
