// SPDX-License-Identifier: Apache-2.0
// Hierarchical: the first rank of each group of `local` neighbours adds the tensors of its group.
// These leaders exchange with each other, and each sends the sum to its group. Only leaders use the
// connection between groups, such as the network between hosts.
//
// Cost for n ranks in m groups of `local` and S bytes: 2 (local - 1) steps of S inside a group,
// plus the steps of the algorithm across m leaders. A leader moves (local - 1) S more than in that
// algorithm: it receives them before the exchange and sends them after it.
#include <algorithm>

#include "trainer/collectives/link_exchanges.h"

namespace penstock::collectives {
namespace {

using Sum = void (*)(Link&, std::span<float>, Workspace&);
using Cost = ExchangeCost (*)(const ExchangeSize&);

template <Sum across>
void hierarchical_sum(Link& link, std::span<float> values, Workspace& workspace) {
  const auto [rank, ranks] = link.world();
  const std::int32_t local = std::min(workspace.local_ranks, ranks);
  const std::int32_t leader = rank / local * local;
  PartOfLink group(link, leader, 1, std::min(local, ranks - leader));
  gather_add(group, values, workspace);
  if (rank == leader) {
    PartOfLink leaders(link, 0, local, (ranks + local - 1) / local);
    across(leaders, values, workspace);
  }
  scatter_copies(group, values);
}

template <Cost across>
ExchangeCost hierarchical_cost(const ExchangeSize& size) {
  const std::int32_t local = std::min(size.local_ranks, size.ranks);
  const std::int32_t groups = (size.ranks + local - 1) / local;
  ExchangeCost cost;
  if (groups > 1) cost = across({.ranks = groups, .bytes = size.bytes});
  cost.steps += 2 * (local - 1);
  cost.bytes += (local - 1) * size.bytes;
  return cost;
}

}  // namespace

extern constinit const AllReduceEntry hierarchical_all_reduce{
    .name = "hierarchical",
    .summary =
        "sums inside groups of neighbours, then a ring across groups, then copies inside them",
    .all_reduce = hierarchical_sum<ring_sum>,
    .cost = hierarchical_cost<ring_cost>,
};

extern constinit const AllReduceEntry hierarchical_halving_doubling_all_reduce{
    .name = "hierarchical-halving-doubling",
    .summary = "as above, with recursive halving and doubling across groups",
    .all_reduce = hierarchical_sum<halving_doubling_sum>,
    .cost = hierarchical_cost<halving_doubling_cost>,
};

extern constinit const AllReduceEntry hierarchical_gather_add_all_reduce{
    .name = "hierarchical-gather-add",
    .summary = "as above, with gather and add across groups",
    .all_reduce = hierarchical_sum<gather_add_sum>,
    .cost = hierarchical_cost<gather_add_cost>,
};

}  // namespace penstock::collectives
