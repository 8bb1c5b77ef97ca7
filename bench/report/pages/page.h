// SPDX-License-Identifier: Apache-2.0
// Writes documents as pages. A page is one self-contained HTML file: no network, no scripts, no
// fonts. It follows the reader's light or dark setting, and suits phones, screens and paper. Every
// text is escaped here; no other code writes markup.
#pragma once

#include <filesystem>
#include <ostream>
#include <string_view>
#include <vector>

#include "bench/document/document.h"

namespace penstock::report {

/// What follows a heading is folded until the reader opens it, and printed on paper. On narrow
/// screens, each row of a table becomes a card. Figures are drawn for wide and for narrow screens,
/// and the page shows one of them.
void write_page(std::string_view title, const document::Document& document, std::ostream& out);

/// Writes each figure into `folder`, for papers. Creates the folder if necessary, and removes the
/// files of figures without data. Throws DataError if the folder or a file cannot be written.
void write_figure_files(const std::vector<document::Figure>& figures,
                        const std::filesystem::path& folder);

}  // namespace penstock::report
