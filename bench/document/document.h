// SPDX-License-Identifier: Apache-2.0
// A document is what a verb has to say: paragraphs, lists, tables, lines to copy. It is written as
// text for terminals and as Markdown; pages take its tables. A verb fills it once, and these
// functions alone know widths, columns and escapes.
#pragma once

#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace penstock::document {

/// Each begins a line. `lead` stands before each of them: "Warning: ".
struct Paragraphs {
  std::vector<std::string> texts{};
  std::string lead{};
};

/// Items with bullets below their heading, if there is one.
struct List {
  std::string heading{};
  std::vector<std::string> items{};
};

struct Column {
  std::string name{};
  bool number = false;  ///< aligned to the right
};

/// Each row has at most as many cells as there are columns.
struct Table {
  std::vector<Column> columns{};
  std::vector<std::vector<std::string>> rows{};
};

/// Lines to copy: they are neither wrapped nor escaped. `lead` tells what they are: "Again: ".
struct Verbatim {
  std::string lead{}, text{};
};

using Block = std::variant<Paragraphs, List, Table, Verbatim>;
/// Blocks without texts, items or rows are left out.
using Document = std::vector<Block>;
bool is_empty(const Block& block);

/// Writes text with an empty line after each block but the last. Lines are wrapped between words at
/// `width` columns; 0: not wrapped. Tables are as wide as their cells.
void write_text(const Document& document, std::ostream& out, std::size_t width = 0);
/// Columns as wide as their widest cell, with two blanks between them.
void write_text(const Table& table, std::ostream& out);

/// Escapes all but `Verbatim`, which becomes code.
void write_markdown(const Document& document, std::ostream& out);

}  // namespace penstock::document
