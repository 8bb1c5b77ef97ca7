// SPDX-License-Identifier: Apache-2.0
// Binary tree: sums go up to rank 0 and the sum comes down again. Each message has the whole
// tensor.
//
// Cost for n ranks and S bytes: at most 4 floor(log2(n)) steps, because a rank serves its two
// children one after the other; a rank with two children and a parent sends or receives 3 S. For
// small tensors on many ranks: nothing is pipelined, so long messages wait for each other.
#include <algorithm>

#include "trainer/collectives/link_exchanges.h"

namespace penstock::collectives {
namespace {

/// A rank's position in the tree, counted from the root.
struct Place {
  Place(const World& world, std::int32_t the_root)
      : index((world.rank - the_root + world.size) % world.size),
        ranks(world.size),
        root(the_root) {}
  bool has(std::int32_t place) const { return place < ranks; }
  std::int32_t rank_of(std::int32_t place) const { return (place + root) % ranks; }
  std::int32_t parent() const { return rank_of((index - 1) / 2); }

  std::int32_t index, ranks, root;
};

/// The step after which the place has the sum of its subtree.
std::int64_t steps_up(std::int32_t place, std::int32_t ranks) {
  std::int64_t steps = 0;
  for (std::int32_t child = 2 * place + 1; child <= 2 * place + 2 && child < ranks; ++child) {
    steps = std::max(steps, steps_up(child, ranks)) + 1;
  }
  return steps;
}

/// The step after which the whole subtree has the sum, if the place has it after step `have`.
std::int64_t steps_down(std::int32_t place, std::int32_t ranks, std::int64_t have) {
  std::int64_t last = have;
  for (std::int32_t child = 2 * place + 1; child <= 2 * place + 2 && child < ranks; ++child) {
    last = std::max(last, steps_down(child, ranks, ++have));
  }
  return last;
}

void tree_sum(Link& link, std::span<float> values, Workspace& workspace) {
  tree_reduce(link, values, 0, workspace);
  tree_broadcast(link, values, 0);
}

ExchangeCost tree_cost(const ExchangeSize& size) {
  // From 4 ranks on rank 1 has a parent and one child, and from 5 on two.
  const std::int32_t messages = size.ranks == 2 ? 1 : size.ranks < 5 ? 2 : 3;
  return {.steps = steps_down(0, size.ranks, steps_up(0, size.ranks)),
          .bytes = messages * size.bytes};
}

}  // namespace

void tree_reduce(Link& link, std::span<float> values, std::int32_t root, Workspace& workspace) {
  const Place place(link.world(), root);
  for (std::int32_t child = 2 * place.index + 1; child <= 2 * place.index + 2; ++child) {
    if (place.has(child)) receive_and_add(link, place.rank_of(child), values, workspace);
  }
  if (place.index > 0) link.send(place.parent(), sent(values));
}

void tree_broadcast(Link& link, std::span<float> values, std::int32_t root) {
  const Place place(link.world(), root);
  if (place.index > 0) link.receive(place.parent(), received(values));
  for (std::int32_t child = 2 * place.index + 1; child <= 2 * place.index + 2; ++child) {
    if (place.has(child)) link.send(place.rank_of(child), sent(values));
  }
}

extern constinit const AllReduceEntry tree_all_reduce{
    .name = "tree",
    .summary = "sums up and copies down a binary tree; suits few bytes on many ranks",
    .all_reduce = tree_sum,
    .cost = tree_cost,
};

}  // namespace penstock::collectives
