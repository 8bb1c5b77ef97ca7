// SPDX-License-Identifier: Apache-2.0
// The one stylesheet of all figures: what each class looks like on light paper, on a dark screen,
// and in print (as on light paper). Colours that mean something are told apart by people with the
// usual colour deficiencies, and differ in lightness too.
#pragma once

#include <string>

namespace penstock {

/// CSS. Plain rules without variables, which programs that turn SVG into PDF do not know.
std::string figure_style();

}  // namespace penstock
