// SPDX-License-Identifier: Apache-2.0
// The table on the terminal: as wide as that is, with what was measured above and how to read it
// below.
#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <string_view>

#include "bench/report.h"
#include "bench/report_text.h"

namespace penstock {
namespace {

constexpr std::size_t kGap = 2;
/// Notes in a column narrower than this go below their row instead.
constexpr std::size_t kMinNoteWidth = 28;

/// Words of `text` on lines of at most `width` columns; longer words have a line of their own.
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

/// Columns of the table with their widths; the last one, the note, takes what is left.
class Layout {
 public:
  Layout(const SweepResult& sweep, const ReportStyle& style) : sweep_(sweep), style_(style) {
    columns_ = text_columns(sweep);
    status_column_ = columns_.size() - 2;
    for (const std::string& column : columns_) widths_.push_back(column.size());
    for (const Row& row : sweep.rows) {
      const std::vector<std::string> cells = text_cells(sweep, row);
      for (std::size_t i = 0; i + 1 < cells.size(); ++i) {
        widths_[i] = std::max(widths_[i], cells[i].size());
      }
    }
    for (std::size_t i = 0; i + 1 < columns_.size(); ++i) note_at_ += widths_[i] + kGap;
    const auto width = static_cast<std::size_t>(style.width);
    beside_ = note_at_ + kMinNoteWidth <= width;
    if (!beside_) note_at_ = 2 * kGap;
    note_width_ = std::max(kMinNoteWidth, width - std::min(width, note_at_));
  }

  void write_head(std::ostream& out) const {
    std::string line;
    for (std::size_t i = 0; i < status_column_; ++i)
      line += fmt::format("{:<{}}", columns_[i], widths_[i] + kGap);
    line += fmt::format("{:<{}}", columns_[status_column_], widths_[status_column_] + kGap);
    if (beside_) line += columns_.back();
    while (line.ends_with(' ')) line.pop_back();
    out << line << "\n";
  }

  void write_row(const Row& row, std::ostream& out) const {
    const std::vector<std::string> cells = text_cells(sweep_, row);
    for (std::size_t i = 0; i < status_column_; ++i)
      out << fmt::format("{:<{}}", cells[i], widths_[i] + kGap);
    out << coloured(cells[status_column_], row.status, style_);
    const std::vector<std::string> note = wrapped(cells.back(), note_width_);
    const std::size_t behind_status = widths_[status_column_] - cells[status_column_].size() + kGap;
    for (std::size_t i = 0; i < note.size(); ++i) {
      const bool same_line = i == 0 && beside_;
      out << (same_line ? "" : "\n") << std::string(same_line ? behind_status : note_at_, ' ')
          << note[i];
    }
    out << "\n";
  }

 private:
  const SweepResult& sweep_;
  const ReportStyle& style_;
  std::vector<std::string> columns_;
  std::vector<std::size_t> widths_;
  std::size_t status_column_ = 0, note_at_ = 0, note_width_ = 0;
  bool beside_ = true;
};

void write(const SweepResult& sweep, const ReportStyle& wanted, std::ostream& out) {
  const ReportStyle style{std::max(40, wanted.width), wanted.colour};
  out << "\n";
  write_paragraph("", headline(sweep), style, out);
  out << "\n";
  const Layout layout(sweep, style);
  layout.write_head(out);
  for (const Row& row : sweep.rows) layout.write_row(row, out);
  out << "\n";
  const std::vector<const Row*> costly = rows_by_cost(sweep);
  for (const Row* row : costly) write_paragraph("", cost_sentence(sweep, *row), style, out);
  if (!costly.empty()) out << "\n";
  for (const std::string& line : how_to_read(sweep)) write_paragraph("", line, style, out);
  if (!sweep.warnings.empty()) out << "\n";
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

}  // namespace penstock
