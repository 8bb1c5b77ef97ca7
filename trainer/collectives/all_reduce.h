// SPDX-License-Identifier: Apache-2.0
// An all-reduce algorithm adds tensors of all ranks over links, and leaves the sum on each.
//
// To add one: a file in algorithms/ that ends in `extern constinit const AllReduceEntry
// NAME_all_reduce{...}`, and one line `penstock_component(all_reduce NAME)` there.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "dataflow/entry.h"
#include "trainer/collectives/link.h"

namespace penstock {

/// What an algorithm has besides its link; one per rank, the same local_ranks on each.
struct Workspace {
  std::int32_t local_ranks = 1;   ///< ranks 0 .. local_ranks - 1 are near each other, and so on
  std::vector<float> incoming{};  ///< grows to what is asked for and keeps it
  std::span<float> take(std::size_t count) {
    if (incoming.size() < count) incoming.resize(count);
    return std::span(incoming).first(count);
  }
};

/// What an exchange takes where each rank does one thing at a time: sends a message, receives one,
/// or both at once.
struct ExchangeCost {
  std::int64_t steps = 0;  ///< messages that follow each other on the longest way, each one latency
  double bytes = 0;        ///< sent, or received if that is more, by the rank that moves most
};

struct ExchangeSize {
  std::int32_t ranks = 1;
  std::int32_t local_ranks = 1;
  double bytes = 0;  ///< of the tensor
};

struct AllReduceEntry {
  std::string_view name{}, summary{};
  /// Every rank's values become the sums over all ranks, the same bits on each. Called by all
  /// ranks, with equal counts, any count and any number of ranks. Throws what the link throws; the
  /// values are then undefined.
  void (*all_reduce)(Link&, std::span<float> values, Workspace&) = nullptr;
  /// Exact where the count of elements is a multiple of the ranks. For 2 ranks or more.
  ExchangeCost (*cost)(const ExchangeSize&) = nullptr;
};

/// Every algorithm of this program; generated from the component lists.
const Table<AllReduceEntry>& all_reduce_table();

/// What tensors of up to `max_elements` are added with, in `shards` pieces of about equal size, one
/// after another.
struct AllReduceChoice {
  const AllReduceEntry* algorithm = nullptr;
  std::int32_t shards = 1;
  std::uint64_t max_elements = std::numeric_limits<std::uint64_t>::max();
};

/// In ascending order of sizes; the last one takes tensors of any size.
using AllReducePlan = std::vector<AllReduceChoice>;

inline const AllReduceChoice& choice_for(const AllReducePlan& plan, std::uint64_t elements) {
  for (const AllReduceChoice& choice : plan) {
    if (elements <= choice.max_elements) return choice;
  }
  return plan.back();
}

}  // namespace penstock
