// SPDX-License-Identifier: Apache-2.0
#include "bench/report/pages/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "bench/report/figures/markup.h"
#include "penstock_figure_css.h"
#include "penstock_page_css.h"

namespace penstock::report {
namespace {

/// Adds a capital letter and a full stop.
std::string as_sentence(std::string text) {
  if (text.empty()) return text;
  text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  if (std::string_view(".!?").find(text.back()) == std::string_view::npos) text += '.';
  return text;
}

/// Escapes the text and keeps numbers and units on one line.
std::string prose(std::string_view text) {
  constexpr std::string_view kNoBreak = "\xC2\xA0";
  std::string result = escaped(text);
  for (const std::string_view unit : {" %", " ms", " img/s", " cores"}) {
    for (std::size_t at = result.find(unit, 1); at != std::string::npos;
         at = result.find(unit, at + 1)) {
      const bool number = std::isdigit(static_cast<unsigned char>(result[at - 1])) != 0;
      if (number) result.replace(at, 1, kNoBreak);
    }
  }
  return result;
}

constexpr FigureSize kWide{.width = 860}, kNarrow{.width = 360};

}  // namespace

void begin_page(std::ostream& out, std::string_view title) {
  out << "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta name=\"color-scheme\" content=\"light dark\">\n<title>"
      << escaped(title) << "</title>\n<style>\n"
      << kPageCss << kFigureCss << "</style>\n</head>\n<body>\n<h1>" << escaped(title) << "</h1>\n";
}

void end_page(std::ostream& out) { out << "</body>\n</html>\n"; }

void write_heading(std::ostream& out, std::string_view text) {
  out << "<h2>" << escaped(text) << "</h2>\n";
}

void write_paragraph(std::ostream& out, std::string_view text, std::string_view classes) {
  out << fmt::format("<p class=\"{}\">{}</p>\n", classes, prose(text));
}

void write_list(std::ostream& out, const std::vector<std::string>& items) {
  if (items.empty()) return;
  out << "<ul>\n";
  for (const std::string& item : items) out << "<li>" << prose(item) << "</li>\n";
  out << "</ul>\n";
}

void write_command(std::ostream& out, std::string_view command) {
  out << "<pre>";
  for (std::size_t end = 0; !command.empty(); command.remove_prefix(end)) {
    end = std::min(command.find(' '), command.size() - 1) + 1;  // the blank belongs to the word
    out << "<span>" << escaped(command.substr(0, end)) << "</span>";
  }
  out << "</pre>\n";
}

void write_lines(std::ostream& out, const std::vector<std::string>& lines) {
  if (lines.empty()) return;
  out << "<pre>";
  for (const std::string& line : lines) out << escaped(line) << "\n";
  out << "</pre>\n";
}

void write_warnings(std::ostream& out, const std::vector<std::string>& warnings) {
  if (warnings.empty()) return;
  out << "<div class=\"warnings\" role=\"note\">\n";
  for (const std::string& warning : warnings) write_paragraph(out, as_sentence(warning));
  out << "</div>\n";
}

void write_definitions(std::ostream& out, const Definitions& definitions) {
  out << "<dl>\n";
  for (const auto& [name, value] : definitions) {
    out << "<dt>" << escaped(name) << "</dt><dd>" << escaped(value) << "</dd>\n";
  }
  out << "</dl>\n";
}

void write_verdict(std::ostream& out, const std::vector<VerdictLine>& lines) {
  if (lines.empty()) return;
  write_paragraph(out, lines.front().text, "lead " + std::string(lines.front().tone));
  write_verdict_list(out, std::span(lines).subspan(1));
}

void write_verdict_list(std::ostream& out, std::span<const VerdictLine> lines) {
  if (lines.empty()) return;
  out << "<ul class=\"verdict\">\n";
  for (const VerdictLine& line : lines) {
    out << fmt::format("<li class=\"{}\">{}</li>\n", line.tone, prose(line.text));
  }
  out << "</ul>\n";
}

void write_tiles(std::ostream& out, const std::vector<Tile>& tiles) {
  if (tiles.empty()) return;
  out << "<div class=\"tiles\">\n";
  for (const Tile& tile : tiles) {
    out << fmt::format("<div><span>{}</span> <b>{}</b> <span>{}</span></div>\n", escaped(tile.name),
                       escaped(tile.value), escaped(tile.detail));
  }
  out << "</div>\n";
}

void write_table(std::ostream& out, const document::Table& table) {
  if (table.rows.empty()) return;
  const auto classes = [&](std::size_t column) {
    return table.columns[column].number ? " class=\"number\"" : "";
  };
  out << "<div class=\"scroll\"><table>\n<thead><tr>";
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    out << fmt::format("<th scope=\"col\"{}>{}</th>", classes(i), escaped(table.columns[i].name));
  }
  out << "</tr></thead>\n<tbody>\n";
  for (const std::vector<std::string>& row : table.rows) {
    out << "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i) {
      out << fmt::format("<td{} data-name=\"{}\">{}</td>", classes(i),
                         escaped(table.columns[i].name), escaped(row[i]));
    }
    out << "</tr>\n";
  }
  out << "</tbody>\n</table></div>\n";
}

void begin_details(std::ostream& out, std::string_view summary) {
  out << "<details><summary>" << escaped(summary) << "</summary>\n";
}

void end_details(std::ostream& out) { out << "</details>\n"; }

void write_figure(std::ostream& out, const PageFigure& figure) {
  if (!figure.draw) return;
  if (!figure.heading.empty()) write_heading(out, figure.heading);
  out << "<figure>\n<div class=\"wide\">" << figure.draw(kWide) << "</div>\n<div class=\"narrow\">"
      << figure.draw(kNarrow) << "</div>\n";
  if (!figure.caption.empty()) {
    out << "<figcaption>" << prose(figure.caption) << "</figcaption>\n";
  }
  out << "</figure>\n";
}

}  // namespace penstock::report
