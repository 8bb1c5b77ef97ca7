// SPDX-License-Identifier: Apache-2.0
// A document is what a verb has to say: sections with paragraphs, lists, tables, figures and lines
// to copy. A verb fills it once. One renderer writes it as text for terminals, one as Markdown, one
// as a page (bench/report/pages/page.h). They alone know widths, columns, escapes and markup.
#pragma once

#include <cstddef>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace penstock::document {

/// Sets paragraphs apart in pages.
enum class Look : unsigned char { plain, soft, warning };

/// Each begins a line. `lead` stands before each of them in texts and Markdown: "Warning: ".
struct Paragraphs {
  std::vector<std::string> texts{};
  std::string lead{};
  Look look = Look::plain;
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
/// Pages have a heading instead, and break the lines of a `command` between words.
struct Verbatim {
  std::string lead{}, text{};
  bool command = false;
};

/// A sentence, coloured by its tone.
struct VerdictLine {
  std::string_view tone{};  ///< bad, good, open
  std::string text{};
};

/// The first line is the answer and emphasised, if `answers`.
struct Verdict {
  std::vector<VerdictLine> lines{};
  bool answers = false;
};

/// A key number.
struct Tile {
  std::string name{}, value{}, detail{};
};

struct Tiles {
  std::vector<Tile> tiles{};
};

/// Names and values.
struct Facts {
  std::vector<std::pair<std::string, std::string>> facts{};
};

/// The size and form of a figure.
struct FigureSize {
  double width = 720;       ///< pixels; letters keep their size at any width
  bool standalone = false;  ///< a separate file, which contains the stylesheet
};

/// A figure for a page and for a separate file. Texts and Markdown leave it out.
struct Figure {
  std::string file{};     ///< "waterfall.svg"
  std::string heading{};  ///< empty: the text before the figure introduces it
  std::string caption{};
  std::function<std::string(const FigureSize&)> draw{};  ///< SVG; empty: no data
};

struct Block;

/// Left out if all of its blocks are. A page shows the blocks of a `collapsed` one when the reader
/// opens it.
struct Section {
  std::string heading{};
  std::vector<Block> blocks;
  bool collapsed = false;
};

using BlockVariant =
    std::variant<Paragraphs, List, Table, Verbatim, Verdict, Tiles, Facts, Figure, Section>;

struct Block : BlockVariant {
  using BlockVariant::BlockVariant;
};

/// Blocks without texts, items, rows or data are left out.
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
