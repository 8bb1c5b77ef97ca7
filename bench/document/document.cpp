// SPDX-License-Identifier: Apache-2.0
#include "bench/document/document.h"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <sstream>

namespace penstock::document {
namespace {

constexpr std::size_t kGap = 2;  // blanks between columns

/// Writes `lead` and `text`; later lines begin below the text. A word that is longer than a line
/// gets one to itself.
void write_wrapped(std::string_view lead, const std::string& text, std::size_t width,
                   std::ostream& out) {
  if (width == 0) return fmt::print(out, "{}{}\n", lead, text);
  std::istringstream words(text);
  std::string line(lead);
  bool begun = false;
  for (std::string word; words >> word; begun = true) {
    if (begun && line.size() + 1 + word.size() > width) {
      fmt::print(out, "{}\n", line);
      line.assign(lead.size(), ' ');
    } else if (begun) {
      line += ' ';
    }
    line += word;
  }
  fmt::print(out, "{}\n", line);
}

struct TextWriter {
  std::ostream& out;
  const std::size_t width;

  void operator()(const Paragraphs& block) const {
    for (const std::string& text : block.texts) write_wrapped(block.lead, text, width, out);
  }
  void operator()(const List& block) const {
    if (!block.heading.empty()) write_wrapped("", block.heading, width, out);
    for (const std::string& item : block.items) write_wrapped("- ", item, width, out);
  }
  void operator()(const Table& block) const { write_text(block, out); }
  void operator()(const Verbatim& block) const {
    fmt::print(out, "{}{}\n", block.lead, block.text);
  }

  void operator()(const Verdict& block) const {
    for (const VerdictLine& line : block.lines) write_wrapped("", line.text, width, out);
  }

  void operator()(const Tiles& block) const {
    for (const Tile& tile : block.tiles) {
      fmt::print(out, "{}: {} {}\n", tile.name, tile.value, tile.detail);
    }
  }

  void operator()(const Facts& block) const {
    for (const auto& [name, value] : block.facts) write_wrapped(name + ": ", value, width, out);
  }

  void operator()(const Figure&) const {}

  void operator()(const Section& block) const {
    fmt::print(out, "{}\n\n", block.heading);
    write_text(block.blocks, out, width);
  }
};

struct IsEmpty {
  bool operator()(const Paragraphs& block) const { return block.texts.empty(); }
  bool operator()(const List& block) const { return block.items.empty(); }
  bool operator()(const Table& block) const { return block.rows.empty(); }
  bool operator()(const Verbatim& block) const { return block.text.empty(); }
  bool operator()(const Verdict& block) const { return block.lines.empty(); }
  bool operator()(const Tiles& block) const { return block.tiles.empty(); }
  bool operator()(const Facts& block) const { return block.facts.empty(); }
  bool operator()(const Figure& block) const { return !block.draw; }
  bool operator()(const Section& block) const {
    return std::ranges::all_of(block.blocks, is_empty);
  }
};

}  // namespace

bool is_empty(const Block& block) {
  return std::visit(IsEmpty{}, static_cast<const BlockVariant&>(block));
}

void write_text(const Table& table, std::ostream& out) {
  std::vector<std::string> heads;
  std::vector<std::size_t> widths;
  for (const Column& column : table.columns) {
    heads.push_back(column.name);
    widths.push_back(column.name.size());
  }
  for (const std::vector<std::string>& row : table.rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  const auto write_row = [&](const std::vector<std::string>& row) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line.append(i == 0 ? 0 : kGap, ' ');
      line += table.columns[i].number ? fmt::format("{:>{}}", row[i], widths[i])
                                      : fmt::format("{:<{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::print(out, "{}\n", line);
  };
  write_row(heads);
  for (const std::vector<std::string>& row : table.rows) write_row(row);
}

void write_text(const Document& document, std::ostream& out, std::size_t width) {
  bool begun = false;
  for (const Block& block : document) {
    if (is_empty(block) || std::holds_alternative<Figure>(block)) continue;
    if (begun) fmt::print(out, "\n");
    begun = true;
    std::visit(TextWriter{out, width}, static_cast<const BlockVariant&>(block));
  }
}

}  // namespace penstock::document
