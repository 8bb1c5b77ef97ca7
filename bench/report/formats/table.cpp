// SPDX-License-Identifier: Apache-2.0
// The table on the terminal: the answer above it; notes and explanations below.
#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <string_view>

#include "bench/record/report_text.h"
#include "bench/report/pages/sweep_costs.h"
#include "bench/report/report.h"

namespace penstock::report {
namespace {

constexpr std::size_t kGap = 2;

/// Wraps `text` into lines of at most `width` columns. A longer word gets a separate line.
std::vector<std::string> wrapped(const std::string& text, std::size_t width) {
  std::vector<std::string> lines;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (lines.empty() || lines.back().size() + 1 + word.size() > width) {
      lines.push_back(word);
    } else {
      lines.back() += " " + word;
    }
  }
  return lines;
}

void write_paragraph(std::string_view bullet, const std::string& text, const ReportStyle& style,
                     std::ostream& out) {
  const std::string indent(bullet.size(), ' ');
  std::string_view lead = bullet;
  for (const std::string& line :
       wrapped(text, static_cast<std::size_t>(style.width) - indent.size())) {
    out << lead << line << "\n";
    lead = indent;
  }
}

std::string coloured(const std::string& text, Status status, const ReportStyle& style) {
  constexpr std::string_view kGreen = "\x1b[32m", kYellow = "\x1b[33m", kRed = "\x1b[31m";
  if (!style.colour) return text;
  const std::string_view colour = status == Status::ok       ? kGreen
                                  : status == Status::failed ? kRed
                                                             : kYellow;
  return fmt::format("{}{}\x1b[0m", colour, text);
}

/// Writes columns as wide as their widest cell. The last column is the status.
void write_rows(const SweepResult& sweep, const ReportStyle& style, std::ostream& out) {
  const std::vector<std::string> heads = text_columns(sweep);
  std::vector<std::size_t> widths;
  for (const std::string& head : heads) widths.push_back(head.size());
  for (const Row& row : sweep.rows) {
    const std::vector<std::string> cells = text_cells(sweep, row);
    for (std::size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], cells[i].size());
  }
  const auto write = [&](const std::vector<std::string>& cells, const std::string& last) {
    for (std::size_t i = 0; i + 1 < cells.size(); ++i) {
      out << fmt::format("{:<{}}", cells[i], widths[i] + kGap);
    }
    out << last << "\n";
  };
  write(heads, heads.back());
  for (const Row& row : sweep.rows) {
    const std::vector<std::string> cells = text_cells(sweep, row);
    write(cells, coloured(cells.back(), row.status, style));
  }
}

void write(const SweepResult& sweep, const ReportStyle& wanted, std::ostream& out) {
  const ReportStyle style{std::max(40, wanted.width), wanted.colour};
  out << "\n";
  for (const std::string& sentence : answer_of(sweep)) write_paragraph("", sentence, style, out);
  out << "\n";
  write_rows(sweep, style, out);
  out << "\n";
  for (const std::string& note : notes_of(sweep)) write_paragraph("- ", note, style, out);
  for (const std::string& line : how_to_read(sweep)) write_paragraph("- ", line, style, out);
  write_paragraph("- ", headline(sweep), style, out);
  for (const std::string& warning : sweep.warnings) {
    write_paragraph("Warning: ", warning + ".", style, out);
  }
}

}  // namespace

extern constinit const ReportEntry table_report{
    .name = "table",
    .summary = "the table on the terminal",
    .write = write,
};

}  // namespace penstock::report
