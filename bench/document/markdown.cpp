// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ostream.h>

#include "bench/document/document.h"

namespace penstock::document {
namespace {

/// Escapes characters that would end a cell or begin markup.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (std::string_view("|\\*_`<>[]").find(c) != std::string_view::npos) result += '\\';
    result += c == '\n' || c == '\r' ? ' ' : c;
  }
  return result;
}

struct MarkdownWriter {
  std::ostream& out;

  void operator()(const Paragraphs& block) const {
    std::string_view gap;
    for (const std::string& text : block.texts) {
      fmt::print(out, "{}{}{}\n", gap, block.lead, escaped(text));
      gap = "\n";
    }
  }
  void operator()(const List& block) const {
    if (!block.heading.empty()) fmt::print(out, "{}\n\n", escaped(block.heading));
    for (const std::string& item : block.items) fmt::print(out, "- {}\n", escaped(item));
  }
  void operator()(const Table& block) const {
    std::string heads = "|", rule = "|";
    for (const Column& column : block.columns) {
      heads += fmt::format(" {} |", escaped(column.name));
      rule += column.number ? "---:|" : "---|";
    }
    fmt::print(out, "{}\n{}\n", heads, rule);
    for (const std::vector<std::string>& row : block.rows) {
      std::string line = "|";
      for (const std::string& cell : row) line += fmt::format(" {} |", escaped(cell));
      fmt::print(out, "{}\n", line);
    }
  }
  void operator()(const Verbatim& block) const {
    fmt::print(out, "{}`{}`\n", block.lead, block.text);
  }

  void operator()(const Verdict& block) const {
    for (const VerdictLine& line : block.lines) fmt::print(out, "- {}\n", escaped(line.text));
  }

  void operator()(const Tiles& block) const {
    for (const Tile& tile : block.tiles) item(tile.name, tile.value + " " + tile.detail);
  }

  void operator()(const Facts& block) const {
    for (const auto& [name, value] : block.facts) item(name, value);
  }

  void operator()(const Figure&) const {}

  void operator()(const Section& block) const {
    fmt::print(out, "## {}\n\n", escaped(block.heading));
    write_markdown(block.blocks, out);
  }

  void item(const std::string& name, const std::string& value) const {
    fmt::print(out, "- {}: {}\n", escaped(name), escaped(value));
  }
};

}  // namespace

void write_markdown(const Document& document, std::ostream& out) {
  bool begun = false;
  for (const Block& block : document) {
    if (is_empty(block) || std::holds_alternative<Figure>(block)) continue;
    if (begun) fmt::print(out, "\n");
    begun = true;
    std::visit(MarkdownWriter{out}, static_cast<const BlockVariant&>(block));
  }
}

}  // namespace penstock::document
