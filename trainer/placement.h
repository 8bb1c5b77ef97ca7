// SPDX-License-Identifier: Apache-2.0
// Which home each part of the weights has, where several ranks are homes of a parameter server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "trainer/backend.h"

namespace penstock {

/// Elements [first, first + count) of an arena.
struct ArenaRange {
  std::size_t first = 0, count = 0;
  bool operator==(const ArenaRange&) const = default;
};

/// first: home 0 has everything. greedy: each whole tensor goes to the home that has the fewest
/// bytes so far, to the lowest among equals, as tf_cnn_benchmarks places the variables of its
/// cluster. split: tensors of kSplitElements and more are cut into one equal part for each home, as
/// MXNet's servers have them; smaller ones are placed greedily, where MXNet hashes them.
enum class Placement : std::uint8_t { first, greedy, split };

/// MXNET_KVSTORE_BIGARRAY_BOUND's default.
constexpr std::size_t kSplitElements = 1'000'000;

/// Cuts lie at multiples of this many elements from a tensor's begin: a cache line of f32.
constexpr std::size_t kSplitAlignment = 16;

/// Throws ConfigError, which names `option`, for a word that is none of the enumerators.
Placement parse_placement(std::string_view text, std::string_view option);

/// Where parameters lie in the arenas, in the order of the graph's nodes, as systems place
/// variables in the order in which a model makes them; the arenas have them in the order of
/// backward.
std::vector<ArenaRange> parameter_ranges(const ParameterSet& set);

/// The ranges of each home, ascending, with neighbours joined. `tensors` are disjoint, in the order
/// in which they are placed; every element of theirs has exactly one home.
std::vector<std::vector<ArenaRange>> place(Placement placement, std::span<const ArenaRange> tensors,
                                           std::int32_t homes);

}  // namespace penstock
