// SPDX-License-Identifier: Apache-2.0
// Which numbers of ranks a ladder has. Pure functions of text and numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// 1, 2, 4, ... as long as they are at most `most`: tfperftest's ladder.
std::vector<std::int32_t> doublings(std::int32_t most);

/// "1,2,6": ascending, each once. Throws ConfigError.
std::vector<std::int32_t> parse_ranks(std::string_view text);

/// tfperftest's single letters as the flags that they stand for: -m, -g, -b, -r and -x, and -h, if
/// a value follows it: alone it asks for the help text.
std::vector<std::string> spell_out(const std::vector<std::string>& arguments);

}  // namespace penstock
