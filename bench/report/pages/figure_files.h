// SPDX-License-Identifier: Apache-2.0
// Saves the figures of a page as separate SVG files.
#pragma once

#include <filesystem>
#include <vector>

#include "bench/report/pages/page.h"

namespace penstock::report {

/// Writes each figure into `folder`, which is created if necessary. Removes the files of figures
/// without data. Throws ConfigError if the folder cannot be created, and DataError if a file cannot
/// be written.
void write_figure_files(const std::vector<PageFigure>& figures,
                        const std::filesystem::path& folder);

}  // namespace penstock::report
