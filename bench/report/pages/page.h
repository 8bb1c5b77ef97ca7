// SPDX-License-Identifier: Apache-2.0
// The parts that pages are made of. A page is one HTML file that needs nothing else: no network, no
// script, no typeface. It is light or dark as its reader's system is, and reads on a phone, on a
// screen and on paper. Every text is escaped here and nowhere else.
#pragma once

#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/figures/svg.h"

namespace penstock {

void begin_page(std::ostream& out, std::string_view title);
void end_page(std::ostream& out);

void write_heading(std::ostream& out, std::string_view text);
/// `classes`: lead, soft, note; empty: usual text.
void write_paragraph(std::ostream& out, std::string_view text, std::string_view classes = "");
void write_list(std::ostream& out, const std::vector<std::string>& items);
void write_command(std::ostream& out, std::string_view command);
/// Lines to copy, as they are.
void write_lines(std::ostream& out, const std::vector<std::string>& lines);
/// What a reader must know before the numbers; nothing where there is nothing.
void write_warnings(std::ostream& out, const std::vector<std::string>& warnings);

using Definitions = std::vector<std::pair<std::string, std::string>>;
void write_definitions(std::ostream& out, const Definitions& definitions);

/// A sentence with the colour of what it says.
struct VerdictLine {
  std::string_view tone;  ///< bad, good, open
  std::string text;
};
/// The first line stands out.
void write_verdict(std::ostream& out, const std::vector<VerdictLine>& lines);
void write_verdict_list(std::ostream& out, std::span<const VerdictLine> lines);

/// A number that everything else is about.
struct Tile {
  std::string name, value, detail;
};
void write_tiles(std::ostream& out, const std::vector<Tile>& tiles);

struct PageTable {
  struct Column {
    std::string name;
    bool number = false;  ///< aligned to the right
  };
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;
};
/// On narrow screens each row is a card.
void write_table(std::ostream& out, const PageTable& table);

void begin_details(std::ostream& out, std::string_view summary);
void end_details(std::ostream& out);

/// A figure for a page and for a file of its own.
struct PageFigure {
  std::string file{};     ///< "waterfall.svg"
  std::string heading{};  ///< empty: what the figure belongs to has been said
  std::string caption{};
  std::function<std::string(const FigureSize&)> draw{};  ///< empty: there is nothing to show
};
/// Heading, figure and caption; twice, for wide and narrow screens, of which one is shown. Nothing
/// for a figure that has nothing to show.
void write_figure(std::ostream& out, const PageFigure& figure);

}  // namespace penstock
