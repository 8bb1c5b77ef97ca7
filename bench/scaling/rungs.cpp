// SPDX-License-Identifier: Apache-2.0
#include "bench/scaling/rungs.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "dataflow/error.h"
#include "dataflow/options.h"

namespace penstock::scaling {
namespace {

constexpr std::int64_t kMostRanks = 65536;

struct Letter {
  std::string_view letter, flag;
};
constexpr Letter kLetters[] = {{"-m", "--model"},
                               {"-g", "--gpu-per-machine"},
                               {"-b", "--batch-size"},
                               {"-r", "--remote-dir"},
                               {"-x", "--max-gpu"}};

}  // namespace

std::vector<std::int32_t> doublings(std::int32_t most) {
  std::vector<std::int32_t> ranks;
  for (std::int64_t count = 1; count <= most; count *= 2) {
    ranks.push_back(static_cast<std::int32_t>(count));
  }
  return ranks;
}

std::vector<std::int32_t> parse_ranks(std::string_view text) {
  std::vector<std::int32_t> ranks;
  std::istringstream pieces{std::string(text)};
  for (std::string piece; std::getline(pieces, piece, ',');) {
    const std::int64_t count = parse_integer(piece, "--ranks");
    if (count < 1 || count > kMostRanks) {
      throw ConfigError(fmt::format(
          "--ranks has {}; expected whole numbers from 1 to {}, such as 1,2,4", piece, kMostRanks));
    }
    ranks.push_back(static_cast<std::int32_t>(count));
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  if (!ranks.empty()) return ranks;
  throw ConfigError("--ranks names no number; expected a list such as 1,2,4");
}

std::vector<std::string> spell_out(const std::vector<std::string>& arguments) {
  std::vector<std::string> result;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const bool has_word = i + 1 < arguments.size() && !arguments[i + 1].starts_with("-");
    if (argument == "-h" && has_word) {  // alone, -h asks for help
      result.emplace_back("--hosts");
      continue;
    }
    const auto* const letter = std::find_if(std::begin(kLetters), std::end(kLetters),
                                            [&](const Letter& l) { return l.letter == argument; });
    result.push_back(letter == std::end(kLetters) ? argument : std::string(letter->flag));
  }
  return result;
}

}  // namespace penstock::scaling
