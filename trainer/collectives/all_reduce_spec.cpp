// SPDX-License-Identifier: Apache-2.0
#include "trainer/collectives/all_reduce_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/options.h"

namespace penstock::collectives {
namespace {

struct Meaning {
  std::string_view name, algorithm;
};
constexpr std::array kMeanings = {
    Meaning{"nccl", kNccl},
    Meaning{"xring", "ring"},
    Meaning{"collective", "ring"},
    Meaning{"pscpu", "gather-add"},
    Meaning{"psgpu", "gather-add"},
    Meaning{"nccl/xring", "hierarchical"},
    Meaning{"nccl/rechd", "hierarchical-halving-doubling"},
    Meaning{"nccl/pscpu", "hierarchical-gather-add"},
    Meaning{"pscpu/pscpu", "hierarchical-gather-add"},
    Meaning{"ring", "ring"},
    Meaning{"halving-doubling", "halving-doubling"},
    Meaning{"tree", "tree"},
    Meaning{"gather-add", "gather-add"},
    Meaning{"hierarchical", "hierarchical"},
    Meaning{"hierarchical-halving-doubling", "hierarchical-halving-doubling"},
    Meaning{"hierarchical-gather-add", "hierarchical-gather-add"},
};

/// With more shards, the messages of every gradient would be too small.
constexpr std::uint64_t kMaxShards = 1024;
/// Error messages cut longer texts.
constexpr std::size_t kShown = 60;

std::string shown(std::string_view text) {
  return std::string(text.substr(0, kShown)) + (text.size() > kShown ? "..." : "");
}

class Parser {
 public:
  Parser(std::string_view text, std::string_view flag) : text_(text), flag_(flag) {}

  AllReduceSpec parse() const {
    AllReduceSpec spec;
    std::uint64_t before = 0;
    for (std::string_view rest = text_;;) {
      AllReduceRange range = parse_range(cut(rest, ':'));
      if (rest.data() == nullptr) {
        spec.push_back(std::move(range));
        return spec;
      }
      const std::string_view limit = cut(rest, ':');
      range.max_elements = parse_limit(limit);
      if (range.max_elements <= before) {
        refuse(fmt::format("the limit '{}' is not above {}", shown(limit), before),
               "limits of elements that ascend, the first above 0",
               "leave out the range that no tensor would take");
      }
      before = range.max_elements;
      if (rest.data() == nullptr) {
        refuse(fmt::format("nothing follows the limit '{}'", shown(limit)),
               "an algorithm for larger tensors", "write it behind another ':'");
      }
      spec.push_back(std::move(range));
    }
  }

 private:
  /// Returns the text up to the next separator. `rest` becomes the text after it, or null if there
  /// is no separator.
  static std::string_view cut(std::string_view& rest, char separator) {
    const std::size_t end = rest.find(separator);
    const std::string_view piece = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    return piece;
  }

  AllReduceRange parse_range(std::string_view piece) const {
    std::string_view shards = piece;
    const std::string_view name = cut(shards, '#');
    AllReduceRange range{.algorithm = std::string(parse_algorithm(name))};
    if (shards.data() != nullptr) range.shards = parse_shards(shards, name);
    return range;
  }

  std::string_view parse_algorithm(std::string_view name) const {
    const auto found = std::find_if(kMeanings.begin(), kMeanings.end(),
                                    [&](const Meaning& each) { return each.name == name; });
    if (found != kMeanings.end()) return found->algorithm;
    std::vector<std::string> known;
    for (const Meaning& meaning : kMeanings) known.emplace_back(meaning.name);
    const std::string guess = nearest_name(shown(name), known);
    refuse(name.empty() ? "an algorithm is missing"
                        : fmt::format("there is no algorithm '{}'", shown(name)),
           fmt::format("one of {}", join(known)),
           guess.empty() ? "write NAME, NAME#SHARDS or RANGE:LIMIT:RANGE"
                         : fmt::format("did you mean '{}'?", guess));
  }

  std::int32_t parse_shards(std::string_view digits, std::string_view name) const {
    const std::uint64_t shards = parse_number<std::uint64_t>(digits).value_or(0);
    if (shards < 1 || shards > kMaxShards) {
      refuse(fmt::format("'{}#{}' asks for '{}' shards", name, shown(digits), shown(digits)),
             fmt::format("a whole number from 1 to {}", kMaxShards),
             "leave out '#' for tensors in one piece");
    }
    return static_cast<std::int32_t>(shards);
  }

  std::uint64_t parse_limit(std::string_view limit) const {
    constexpr std::string_view kSuffixes = "kKMGT";
    constexpr std::array kShifts = {10, 10, 20, 30, 40};
    int shift = 0;
    std::string_view digits = limit;
    if (!limit.empty() && kSuffixes.find(limit.back()) != std::string_view::npos) {
      shift = kShifts[kSuffixes.find(limit.back())];
      digits.remove_suffix(1);
    }
    const auto number = parse_number<std::uint64_t>(digits);
    if (!number || *number > std::numeric_limits<std::uint64_t>::max() >> shift) {
      refuse(fmt::format("the limit '{}' is no number of elements below 2^64", shown(limit)),
             "digits, then k, M, G or T for powers of 1024, such as 32k",
             "write RANGE:LIMIT:RANGE, such as pscpu:32k:xring");
    }
    return *number << shift;
  }

  [[noreturn]] void refuse(const std::string& found, const std::string& expected,
                           const std::string& advice) const {
    throw ConfigError("{} is '{}': {}; expected {}; {}", flag_, shown(text_), found, expected,
                      advice);
  }

  const std::string_view text_, flag_;
};

}  // namespace

AllReduceSpec parse_all_reduce_spec(std::string_view text, std::string_view flag) {
  return Parser(text, flag).parse();
}

}  // namespace penstock::collectives
