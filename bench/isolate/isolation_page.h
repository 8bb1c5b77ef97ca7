// SPDX-License-Identifier: Apache-2.0
// The page about what one feeder costs one trainer: verdict in words, figures, tables, where it ran
// and how to measure it again. One HTML file that needs nothing else.
#pragma once

#include <filesystem>
#include <ostream>

#include "bench/isolate/isolation.h"

namespace penstock {

/// What is not known is left out, or said to be missing; no member needs to be filled in.
void write_isolation_page(const Isolation& isolation, std::ostream& out);

/// The page's figures as SVG files of their own, for papers: `folder`/waterfall.svg, and so on. The
/// folder is made where it is missing; files of figures that have no data are not written, and
/// those of an earlier result are removed. Throws ConfigError or DataError, with the path.
void write_isolation_figures(const Isolation& isolation, const std::filesystem::path& folder);

}  // namespace penstock
