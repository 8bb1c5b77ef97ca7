// SPDX-License-Identifier: Apache-2.0
// Gather and add: rank 0 receives the tensor of every other rank, adds them in rank order, and
// sends the sum to each. A parameter server does the same. The sums have the same bits as the sums
// of the shared-memory group.
//
// Cost for n ranks and S bytes: 2 (n - 1) steps; rank 0 receives (n - 1) S and sends (n - 1) S;
// every other rank sends S and receives S.
#include "trainer/collectives/link_exchanges.h"

namespace penstock::collectives {

void gather_add(Link& link, std::span<float> values, Workspace& workspace) {
  const auto [rank, ranks] = link.world();
  if (rank > 0) {
    link.send(0, sent(values));
    return;
  }
  for (std::int32_t other = 1; other < ranks; ++other) {
    receive_and_add(link, other, values, workspace);
  }
}

void scatter_copies(Link& link, std::span<float> values) {
  const auto [rank, ranks] = link.world();
  if (rank > 0) {
    link.receive(0, received(values));
    return;
  }
  for (std::int32_t other = 1; other < ranks; ++other) link.send(other, sent(values));
}

void gather_add_sum(Link& link, std::span<float> values, Workspace& workspace) {
  gather_add(link, values, workspace);
  scatter_copies(link, values);
}

ExchangeCost gather_add_cost(const ExchangeSize& size) {
  return {.steps = 2 * (std::int64_t{size.ranks} - 1), .bytes = (size.ranks - 1) * size.bytes};
}

extern constinit const AllReduceEntry gather_add_all_reduce{
    .name = "gather-add",
    .summary = "rank 0 adds all tensors in rank order and sends the sum to every rank",
    .all_reduce = gather_add_sum,
    .cost = gather_add_cost,
};

}  // namespace penstock::collectives
