// SPDX-License-Identifier: Apache-2.0
#include "trainer/placement.h"

#include <algorithm>

#include "dataflow/error.h"

namespace penstock {
namespace {

class Homes {
 public:
  explicit Homes(std::int32_t count)
      : ranges_(static_cast<std::size_t>(count)), loads_(ranges_.size()) {}
  std::size_t count() const noexcept { return ranges_.size(); }

  void add(std::size_t home, const ArenaRange& range) {
    if (range.count == 0) return;
    ranges_[home].push_back(range);
    loads_[home] += range.count;
  }
  void add_greedily(const ArenaRange& range) {
    const auto least = std::min_element(loads_.begin(), loads_.end());
    add(static_cast<std::size_t>(least - loads_.begin()), range);
  }
  void split(const ArenaRange& range) {
    const std::size_t lines = (range.count + kSplitAlignment - 1) / kSplitAlignment;
    std::size_t begin = 0;
    for (std::size_t home = 0; home < count(); ++home) {
      const std::size_t end = std::min(range.count, lines * (home + 1) / count() * kSplitAlignment);
      add(home, {range.first + begin, end - begin});
      begin = end;
    }
  }
  std::vector<std::vector<ArenaRange>> joined() && {
    for (std::vector<ArenaRange>& ranges : ranges_) join_neighbours(ranges);
    return std::move(ranges_);
  }

 private:
  static void join_neighbours(std::vector<ArenaRange>& ranges) {
    std::sort(ranges.begin(), ranges.end(),
              [](const ArenaRange& a, const ArenaRange& b) { return a.first < b.first; });
    std::vector<ArenaRange> joined;
    for (const ArenaRange& range : ranges) {
      if (!joined.empty() && joined.back().first + joined.back().count == range.first) {
        joined.back().count += range.count;
      } else {
        joined.push_back(range);
      }
    }
    ranges = std::move(joined);
  }

  std::vector<std::vector<ArenaRange>> ranges_;
  std::vector<std::size_t> loads_;  // in elements
};

}  // namespace

std::vector<ArenaRange> parameter_ranges(const ParameterSet& set) {
  std::vector<const Parameter*> parameters;
  for (const Parameter& parameter : set.parameters) parameters.push_back(&parameter);
  std::reverse(parameters.begin(), parameters.end());
  std::stable_sort(
      parameters.begin(), parameters.end(),
      [](const Parameter* a, const Parameter* b) { return a->spec.node < b->spec.node; });
  std::vector<ArenaRange> ranges;
  for (const Parameter* parameter : parameters) {
    ranges.push_back({offset_in(set.weights, parameter->weight), parameter->weight.count});
  }
  return ranges;
}

Placement parse_placement(std::string_view text, std::string_view option) {
  if (text == "first") return Placement::first;
  if (text == "greedy") return Placement::greedy;
  if (text == "split") return Placement::split;
  throw ConfigError("{} is '{}'; expected first, greedy or split", option, text);
}

std::vector<std::vector<ArenaRange>> place(Placement placement, std::span<const ArenaRange> tensors,
                                           std::int32_t homes) {
  Homes placed(homes);
  for (const ArenaRange& tensor : tensors) {
    if (placement == Placement::first) {
      placed.add(0, tensor);
    } else if (placement == Placement::split && tensor.count >= kSplitElements) {
      placed.split(tensor);
    } else {
      placed.add_greedily(tensor);
    }
  }
  return std::move(placed).joined();
}

}  // namespace penstock
