// SPDX-License-Identifier: Apache-2.0
#include "trainer/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "dataflow/error.h"
#include "tests/support/thrown_by.h"
#include "trainer/model.h"

namespace penstock {
namespace {

using Ranges = std::vector<ArenaRange>;

std::size_t elements(const Ranges& ranges) {
  return std::accumulate(
      ranges.begin(), ranges.end(), std::size_t{0},
      [](std::size_t sum, const ArenaRange& range) { return sum + range.count; });
}

/// A model's tensors, one after the other.
Ranges tensors_of(std::string_view model) {
  const ModelEntry& entry = find_entry(model_table(), model);
  Ranges tensors;
  std::size_t first = 0;
  for (const ParameterSpec& spec : build_graph(entry, entry.image, entry.classes).parameters()) {
    tensors.push_back({first, static_cast<std::size_t>(spec.count())});
    first += tensors.back().count;
  }
  return tensors;
}

/// Expects that each element of the tensors is in exactly one range.
void expect_partition(const std::vector<Ranges>& homes, const Ranges& tensors) {
  Ranges all;
  for (const Ranges& ranges : homes) all.insert(all.end(), ranges.begin(), ranges.end());
  std::sort(all.begin(), all.end(),
            [](const ArenaRange& a, const ArenaRange& b) { return a.first < b.first; });
  std::size_t end = 0;
  for (const ArenaRange& range : all) {
    EXPECT_EQ(range.first, end);
    end = range.first + range.count;
  }
  EXPECT_EQ(end, elements(tensors));
}

TEST(Placement, FirstGivesEverythingToHome0) {
  const Ranges tensors{{0, 10}, {10, 4}, {14, 1}};
  EXPECT_EQ(place(Placement::first, tensors, 3), (std::vector<Ranges>{{{0, 15}}, {}, {}}));
}

TEST(Placement, GreedyGivesEachTensorToTheLeastLoadedAndLowestHome) {
  const Ranges tensors{{0, 4}, {4, 3}, {7, 2}, {9, 2}, {11, 5}};
  // Loads by step: 4 0 0, 4 3 0, 4 3 2, 4 3 4, 4 8 4.
  EXPECT_EQ(place(Placement::greedy, tensors, 3),
            (std::vector<Ranges>{{{0, 4}}, {{4, 3}, {11, 5}}, {{7, 4}}}));
}

TEST(Placement, GreedyDependsOnTheOrderAndKeepsGaps) {
  const Ranges tensors{{20, 5}, {11, 2}, {0, 8}};
  EXPECT_EQ(place(Placement::greedy, tensors, 2),
            (std::vector<Ranges>{{{20, 5}}, {{0, 8}, {11, 2}}}));
}

TEST(Placement, SplitCutsLargeTensorsForAllHomesAndPlacesSmallOnes) {
  const Ranges tensors{{0, kSplitElements - 1}, {kSplitElements - 1, 3 * 1'000'000 + 5}};
  const std::vector<Ranges> homes = place(Placement::split, tensors, 3);
  expect_partition(homes, tensors);
  EXPECT_EQ(homes[0].size(), 1U);  // its small tensor, and the neighbouring part
  EXPECT_EQ(homes[2], (Ranges{{kSplitElements - 1 + 2'000'000, 1'000'005}}));
  for (const Ranges& ranges : homes) {
    for (const ArenaRange& range : ranges) {
      if (range.first == 0) continue;
      EXPECT_EQ((range.first - (kSplitElements - 1)) % kSplitAlignment, 0U);
    }
  }
}

TEST(Placement, OneHomeHasEverything) {
  const Ranges tensors{{0, kSplitElements}, {kSplitElements, 7}};
  for (const Placement placement : {Placement::first, Placement::greedy, Placement::split}) {
    EXPECT_EQ(place(placement, tensors, 1), (std::vector<Ranges>{{{0, kSplitElements + 7}}}));
  }
}

TEST(Placement, MoreHomesThanTensorsLeavesSomeWithNothing) {
  const Ranges tensors{{0, 3}, {3, 3}};
  EXPECT_EQ(place(Placement::greedy, tensors, 4),
            (std::vector<Ranges>{{{0, 3}}, {{3, 3}}, {}, {}}));
}

/// Its largest tensor has 9.5 MB, which bounds the imbalance of a greedy placement.
TEST(Placement, GreedyBalancesResNet50AndOnlySplittingBalancesVgg16) {
  constexpr std::int32_t kHomes = 4;
  const auto spread = [](const std::vector<Ranges>& homes) {
    std::vector<std::size_t> loads;
    for (const Ranges& ranges : homes) loads.push_back(4 * elements(ranges));
    const auto [least, most] = std::minmax_element(loads.begin(), loads.end());
    return *most - *least;
  };
  const Ranges resnet = tensors_of("resnet50");
  const auto largest =
      std::max_element(resnet.begin(), resnet.end(),
                       [](const ArenaRange& a, const ArenaRange& b) { return a.count < b.count; });
  EXPECT_EQ(resnet.size(), 161U);
  EXPECT_EQ(4 * largest->count, std::size_t{4 * 3 * 3 * 512 * 512});
  EXPECT_LE(4 * largest->count, 9'500'000U);
  const std::vector<Ranges> homes = place(Placement::greedy, resnet, kHomes);
  expect_partition(homes, resnet);
  EXPECT_LE(spread(homes), 4 * largest->count);
  const Ranges vgg = tensors_of("vgg16");
  EXPECT_GT(spread(place(Placement::greedy, vgg, kHomes)), 300'000'000U);
  const std::vector<Ranges> split = place(Placement::split, vgg, kHomes);
  expect_partition(split, vgg);
  EXPECT_LE(spread(split), 4 * kSplitElements);
}

TEST(Placement, WordsAreParsedAndOthersRefused) {
  EXPECT_EQ(parse_placement("split", "x"), Placement::split);
  EXPECT_EQ(thrown_by<ConfigError>([] { parse_placement("last", "parameter_server:placement"); }),
            "parameter_server:placement is 'last'; expected first, greedy or split");
}

}  // namespace
}  // namespace penstock
