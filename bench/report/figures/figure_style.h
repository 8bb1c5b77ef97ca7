// SPDX-License-Identifier: Apache-2.0
// The one stylesheet of all figures: the look of each class on light paper, on a dark screen, and
// in print (as on light paper). Colours with a meaning are distinguishable with the usual colour
// deficiencies, and also differ in lightness.
#pragma once

#include <string>

namespace penstock::report {

/// CSS without variables, because converters from SVG to PDF do not support them.
std::string figure_style();

}  // namespace penstock::report
