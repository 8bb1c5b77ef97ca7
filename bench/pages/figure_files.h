// SPDX-License-Identifier: Apache-2.0
// Figures of a page as SVG files of their own.
#pragma once

#include <filesystem>
#include <vector>

#include "bench/pages/page.h"

namespace penstock {

/// Writes each figure into `folder`, which is made where it is missing, and removes the files of
/// those that have nothing to show. Throws ConfigError when the folder cannot be made, DataError
/// when a file cannot be written.
void write_figure_files(const std::vector<PageFigure>& figures,
                        const std::filesystem::path& folder);

}  // namespace penstock
