// SPDX-License-Identifier: Apache-2.0
// Exchanges over links that the algorithms and LinkCollective share: shares of a tensor, messages
// of floats, sums and copies along a tree. The algorithms define them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trainer/collectives/all_reduce.h"
#include "trainer/collectives/link.h"

namespace penstock::collectives {

/// Shares first .. last - 1 of `of` nearly equal shares; if there are few elements, some are empty.
inline std::span<float> shares(std::span<float> values, std::int32_t first, std::int32_t last,
                               std::int32_t of) {
  const auto edge = [&](std::int32_t share) {
    return values.size() * static_cast<std::size_t>(share) / static_cast<std::size_t>(of);
  };
  return values.subspan(edge(first), edge(last) - edge(first));
}

inline std::span<const std::byte> sent(std::span<const float> values) {
  return std::as_bytes(values);
}
inline std::span<std::byte> received(std::span<float> values) {
  return std::as_writable_bytes(values);
}

/// sums[i] += values[i]. Equal counts.
inline void add(std::span<float> sums, std::span<const float> values) {
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
}

inline void receive_and_add(Link& link, std::int32_t from, std::span<float> sums,
                            Workspace& workspace) {
  const std::span<float> incoming = workspace.take(sums.size());
  link.receive(from, received(incoming));
  add(sums, incoming);
}

/// A link over a subset of the ranks: first, first + stride, ...
class PartOfLink final : public Link {
 public:
  /// Borrows `whole`, whose rank is in the subset.
  PartOfLink(Link& whole, std::int32_t first, std::int32_t stride, std::int32_t count)
      : whole_(whole), first_(first), stride_(stride), count_(count) {}
  World world() const noexcept override {
    return {(whole_.world().rank - first_) / stride_, count_};
  }
  void send_receive(std::int32_t to, std::span<const std::byte> sent, std::int32_t from,
                    std::span<std::byte> received) override {
    whole_.send_receive(rank_of(to), sent, rank_of(from), received);
  }

 private:
  std::int32_t rank_of(std::int32_t part) const noexcept { return first_ + part * stride_; }

  Link& whole_;
  const std::int32_t first_, stride_, count_;
};

/// Rank 0 adds the values of all other ranks to its own, in rank order; the others keep theirs.
/// ranks - 1 steps; rank 0 receives (ranks - 1) S.
void gather_add(Link& link, std::span<float> values, Workspace& workspace);
/// Rank 0 sends its values to each other rank. ranks - 1 steps; rank 0 sends (ranks - 1) S.
void scatter_copies(Link& link, std::span<float> values);

// The binary tree over ranks counted from `root` on: rank i has the children 2i + 1 and 2i + 2. A
// rank first handles its own values, then its children's in this order.
/// The root's values become the sum over all ranks. A rank with children gets the sum over its
/// subtree in its values; copy them first if they are still needed.
void tree_reduce(Link& link, std::span<float> values, std::int32_t root, Workspace& workspace);
/// Every rank's values become the root's.
void tree_broadcast(Link& link, std::span<float> values, std::int32_t root);

/// The algorithms of ring.cpp, halving_doubling.cpp and gather_add.cpp, for exchanges across
/// groups.
void ring_sum(Link& link, std::span<float> values, Workspace& workspace);
ExchangeCost ring_cost(const ExchangeSize& size);
void halving_doubling_sum(Link& link, std::span<float> values, Workspace& workspace);
ExchangeCost halving_doubling_cost(const ExchangeSize& size);
void gather_add_sum(Link& link, std::span<float> values, Workspace& workspace);
ExchangeCost gather_add_cost(const ExchangeSize& size);

}  // namespace penstock::collectives
