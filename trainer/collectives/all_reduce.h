// SPDX-License-Identifier: Apache-2.0
// The interface of all-reduce algorithms. An algorithm adds the tensors of all ranks over links and
// leaves the sum on each rank.
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

namespace penstock::collectives {

/// The memory of an algorithm. Each rank has one; local_ranks is equal on all ranks.
struct Workspace {
  std::int32_t local_ranks = 1;   ///< consecutive ranks in groups of this size are near
  std::vector<float> incoming{};  ///< grows on request and never shrinks
  std::span<float> take(std::size_t count) {
    if (incoming.size() < count) incoming.resize(count);
    return std::span(incoming).first(count);
  }
};

/// The cost of an exchange in which each rank does one thing at a time: sends a message, receives
/// one, or both at once.
struct ExchangeCost {
  std::int64_t steps = 0;  ///< consecutive messages on the longest path, one latency each
  double bytes = 0;        ///< sent or received (the larger one) by the rank that moves most
};

struct ExchangeSize {
  std::int32_t ranks = 1;
  std::int32_t local_ranks = 1;
  double bytes = 0;  ///< of the tensor
};

struct AllReduceEntry {
  std::string_view name{}, summary{};
  /// Every rank's values become the sums over all ranks, with the same bits on each. All ranks call
  /// it, with equal counts; any count and any number of ranks works. Throws the link's exceptions;
  /// the values are then undefined.
  void (*all_reduce)(Link&, std::span<float> values, Workspace&) = nullptr;
  /// Exact if the element count is a multiple of the number of ranks. For 2 ranks or more.
  ExchangeCost (*cost)(const ExchangeSize&) = nullptr;
};

/// Every algorithm of this program. Generated from the component lists.
const Table<AllReduceEntry>& all_reduce_table();

/// The algorithm for tensors of up to `max_elements`. It adds `shards` pieces of about equal size,
/// one after another.
struct AllReduceChoice {
  const AllReduceEntry* algorithm = nullptr;
  std::int32_t shards = 1;
  std::uint64_t max_elements = std::numeric_limits<std::uint64_t>::max();
};

/// In ascending order of sizes; the last entry takes tensors of any size.
using AllReducePlan = std::vector<AllReduceChoice>;

inline const AllReduceChoice& choice_for(const AllReducePlan& plan, std::uint64_t elements) {
  for (const AllReduceChoice& choice : plan) {
    if (elements <= choice.max_elements) return choice;
  }
  return plan.back();
}

}  // namespace penstock::collectives
