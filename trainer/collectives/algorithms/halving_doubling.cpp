// SPDX-License-Identifier: Apache-2.0
// Recursive halving and doubling (Rabenseifner; Thakur, Rabenseifner and Gropp, "Optimization of
// collective communication operations in MPICH", 2005). In each step a rank exchanges half of its
// remaining elements with a partner, which is nearer each time, until each rank has the sum of one
// share. Then the same steps run in reverse.
//
// Cost for n = 2^k ranks and S bytes: 2 log2(n) steps, 2 (n - 1) / n S sent and received by each
// rank. For other n, p is the largest power of two below n. Each of the n - p ranks beyond p first
// gives its tensor to a neighbour and finally gets the sum from it: 2 more steps of S. Its
// neighbour then moves 2 (p - 1) / p S + S.
#include <bit>

#include "trainer/collectives/link_exchanges.h"

namespace penstock::collectives {
namespace {

/// The ranks that remain after the first 2 * folded ranks have formed `folded` pairs; the odd rank
/// of a pair continues for both.
struct Folding {
  explicit Folding(std::int32_t ranks)
      : power(static_cast<std::int32_t>(std::bit_floor(static_cast<std::uint32_t>(ranks)))),
        folded(ranks - power) {}
  std::int32_t rank_of(std::int32_t index) const {
    return index < folded ? 2 * index + 1 : index + folded;
  }
  std::int32_t index_of(std::int32_t rank) const {
    return rank < 2 * folded ? rank / 2 : rank - folded;
  }

  std::int32_t power, folded;
};

/// Shares [first, last) of `of` shares.
struct Shares {
  std::int32_t first, last;
};

void exchange_among_power(Link& link, const Folding& folding, std::span<float> values,
                          Workspace& workspace) {
  const std::int32_t index = folding.index_of(link.world().rank);
  const auto part = [&](const Shares& range) {
    return shares(values, range.first, range.last, folding.power);
  };
  Shares own{0, folding.power};
  for (std::int32_t distance = folding.power / 2; distance > 0; distance /= 2) {
    const std::int32_t middle = own.first + distance;
    const Shares low{own.first, middle}, high{middle, own.last};
    const bool upper = (index & distance) != 0;
    own = upper ? high : low;
    const std::int32_t peer = folding.rank_of(index ^ distance);
    const std::span<float> incoming = workspace.take(part(own).size());
    link.send_receive(peer, sent(part(upper ? low : high)), peer, received(incoming));
    add(part(own), incoming);
  }
  for (std::int32_t distance = 1; distance < folding.power; distance *= 2) {
    const bool upper = (index & distance) != 0;
    const Shares other =
        upper ? Shares{own.first - distance, own.first} : Shares{own.last, own.last + distance};
    const std::int32_t peer = folding.rank_of(index ^ distance);
    link.send_receive(peer, sent(part(own)), peer, received(part(other)));
    own = upper ? Shares{other.first, own.last} : Shares{own.first, other.last};
  }
}

}  // namespace

void halving_doubling_sum(Link& link, std::span<float> values, Workspace& workspace) {
  const std::int32_t rank = link.world().rank;
  const Folding folding(link.world().size);
  const bool pairs = rank < 2 * folding.folded;
  if (pairs && rank % 2 == 0) {
    link.send(rank + 1, sent(values));
    link.receive(rank + 1, received(values));
    return;
  }
  if (pairs) receive_and_add(link, rank - 1, values, workspace);
  exchange_among_power(link, folding, values, workspace);
  if (pairs) link.send(rank - 1, sent(values));
}

ExchangeCost halving_doubling_cost(const ExchangeSize& size) {
  const Folding folding(size.ranks);
  const double power = folding.power;
  ExchangeCost cost{.steps = 2 * (std::bit_width(static_cast<std::uint32_t>(folding.power)) - 1),
                    .bytes = 2 * (power - 1) / power * size.bytes};
  if (folding.folded > 0) {
    cost.steps += 2;
    cost.bytes += size.bytes;
  }
  return cost;
}

extern constinit const AllReduceEntry halving_doubling_all_reduce{
    .name = "halving-doubling",
    .summary =
        "recursive halving and doubling: fewest bytes, 2 log2(n) steps on n ranks if n is a power "
        "of two",
    .all_reduce = halving_doubling_sum,
    .cost = halving_doubling_cost,
};

}  // namespace penstock::collectives
