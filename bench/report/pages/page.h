// SPDX-License-Identifier: Apache-2.0
// The parts of pages. A page is one self-contained HTML file: no network, no scripts, no fonts. It
// follows the reader's light or dark setting, and suits phones, screens and paper. These functions
// escape every text; no other code does.
#pragma once

#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/document/document.h"
#include "bench/report/figures/svg.h"

namespace penstock::report {

void begin_page(std::ostream& out, std::string_view title);
void end_page(std::ostream& out);

void write_heading(std::ostream& out, std::string_view text);
/// `classes`: lead, soft, note; empty: normal text.
void write_paragraph(std::ostream& out, std::string_view text, std::string_view classes = "");
void write_list(std::ostream& out, const std::vector<std::string>& items);
void write_command(std::ostream& out, std::string_view command);
/// Lines to copy, printed verbatim.
void write_lines(std::ostream& out, const std::vector<std::string>& lines);
/// What a reader must know before the numbers. Writes nothing if there are no warnings.
void write_warnings(std::ostream& out, const std::vector<std::string>& warnings);

using Definitions = std::vector<std::pair<std::string, std::string>>;
void write_definitions(std::ostream& out, const Definitions& definitions);

/// A sentence, coloured by its tone.
struct VerdictLine {
  std::string_view tone;  ///< bad, good, open
  std::string text;
};
/// Emphasises the first line.
void write_verdict(std::ostream& out, const std::vector<VerdictLine>& lines);
void write_verdict_list(std::ostream& out, std::span<const VerdictLine> lines);

/// A key number of the page.
struct Tile {
  std::string name, value, detail;
};
void write_tiles(std::ostream& out, const std::vector<Tile>& tiles);

/// On narrow screens, each row becomes a card. Writes nothing without rows.
void write_table(std::ostream& out, const document::Table& table);

void begin_details(std::ostream& out, std::string_view summary);
void end_details(std::ostream& out);

/// A figure for a page and for a separate file.
struct PageFigure {
  std::string file{};     ///< "waterfall.svg"
  std::string heading{};  ///< empty: the text before the figure introduces it
  std::string caption{};
  std::function<std::string(const FigureSize&)> draw{};  ///< empty: no data
};
/// Writes heading, figure and caption. The figure is drawn for wide and for narrow screens, and the
/// page shows one of them. Writes nothing for a figure without data.
void write_figure(std::ostream& out, const PageFigure& figure);

}  // namespace penstock::report
