// SPDX-License-Identifier: Apache-2.0
// Ring: each rank sends to the next rank and receives from the previous one. The tensor is divided
// into one share for each rank. A share goes around once, and each rank adds its elements
// (reduce-scatter). Then the sum goes around once more (all-gather).
//
// Cost for n ranks and S bytes: 2 (n - 1) steps, 2 (n - 1) / n S sent and received by each rank.
// This is the least possible number of bytes of an all-reduce (Patarasuk and Yuan, J. Parallel
// Distrib. Comput. 69, 2009), but the number of steps grows with n.
#include "trainer/collectives/link_exchanges.h"

namespace penstock::collectives {

void ring_sum(Link& link, std::span<float> values, Workspace& workspace) {
  const auto [rank, ranks] = link.world();
  if (ranks == 1) return;
  const std::int32_t next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
  const auto share = [&, ranks = ranks](std::int32_t index) {
    const std::int32_t i = (index % ranks + ranks) % ranks;
    return shares(values, i, i + 1, ranks);
  };
  for (std::int32_t step = 0; step < ranks - 1; ++step) {
    const std::span<float> mine = share(rank - step - 1);
    const std::span<float> incoming = workspace.take(mine.size());
    link.send_receive(next, sent(share(rank - step)), before, received(incoming));
    add(mine, incoming);
  }
  for (std::int32_t step = 0; step < ranks - 1; ++step) {
    link.send_receive(next, sent(share(rank + 1 - step)), before, received(share(rank - step)));
  }
}

ExchangeCost ring_cost(const ExchangeSize& size) {
  const double ranks = size.ranks;
  return {.steps = 2 * (std::int64_t{size.ranks} - 1),
          .bytes = 2 * (ranks - 1) / ranks * size.bytes};
}

extern constinit const AllReduceEntry ring_all_reduce{
    .name = "ring",
    .summary =
        "reduce-scatter and all-gather around a ring: fewest bytes, 2 (n - 1) steps on n ranks",
    .all_reduce = ring_sum,
    .cost = ring_cost,
};

}  // namespace penstock::collectives
