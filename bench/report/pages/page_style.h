// SPDX-License-Identifier: Apache-2.0
// The stylesheet of pages, without the rules for figures.
#pragma once

#include <string_view>

namespace penstock::report {

std::string_view page_style();

}  // namespace penstock::report
