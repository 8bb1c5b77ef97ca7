// SPDX-License-Identifier: Apache-2.0
// The stylesheet of pages, without that of figures.
#pragma once

#include <string_view>

namespace penstock {

std::string_view page_style();

}  // namespace penstock
