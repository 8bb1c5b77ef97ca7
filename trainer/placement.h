// SPDX-License-Identifier: Apache-2.0
// Assigns each part of the weights to a home, if several ranks are homes of a parameter server.
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

/// first: home 0 has everything. greedy: each whole tensor goes to the home with the fewest bytes
/// so far (the lowest among equals), as tf_cnn_benchmarks places the variables of its cluster.
/// split: tensors of at least kSplitElements are divided into one equal part for each home, as in
/// MXNet's servers. Smaller tensors are placed greedily; MXNet hashes them.
enum class Placement : std::uint8_t { first, greedy, split };

/// The default of MXNET_KVSTORE_BIGARRAY_BOUND.
constexpr std::size_t kSplitElements = 1'000'000;

/// Parts start at multiples of this many elements from the start of the tensor: one cache line of
/// f32.
constexpr std::size_t kSplitAlignment = 16;

/// Throws ConfigError, which names `option`, if the word is not an enumerator.
Placement parse_placement(std::string_view text, std::string_view option);

/// The position of the parameters in the arenas, in the order of the graph's nodes. Other systems
/// place variables in this order, in which the model creates them. The arenas use the order of
/// backward.
std::vector<ArenaRange> parameter_ranges(const ParameterSet& set);

/// Returns the ranges of each home, ascending, with neighbours joined. `tensors` are disjoint and
/// in the order of placement. Every element has exactly one home.
std::vector<std::vector<ArenaRange>> place(Placement placement, std::span<const ArenaRange> tensors,
                                           std::int32_t homes);

}  // namespace penstock
