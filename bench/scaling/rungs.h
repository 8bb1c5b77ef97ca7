// SPDX-License-Identifier: Apache-2.0
// Determines the numbers of ranks of a ladder. Pure functions of text and numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::scaling {

/// 1, 2, 4, ... up to `most`: tfperftest's ladder.
std::vector<std::int32_t> doublings(std::int32_t most);

/// Parses "1,2,6": ascending, without repetition. Throws ConfigError.
std::vector<std::int32_t> parse_ranks(std::string_view text);

/// Replaces tfperftest's short flags by their long flags: -m, -g, -b, -r, -x, and -h if a value
/// follows it. -h alone asks for the help text.
std::vector<std::string> spell_out(const std::vector<std::string>& arguments);

}  // namespace penstock::scaling
