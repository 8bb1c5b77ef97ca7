// SPDX-License-Identifier: Apache-2.0
// The homes of a parameter server whose ranks are its clients as well: which rank adds the
// gradients of which part of the arenas, applies them and hands the weights out. Every rank calls
// the same members in the same order.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/placement.h"
#include "trainer/update_strategy.h"

namespace penstock {

class Homes {
 public:
  /// Throws ConfigError for a placement that gives the context's optimizer less than it needs.
  Homes(const UpdateContext& context, Placement placement);

  /// The home of each range gets the sum over all ranks there; elsewhere its gradients are
  /// anything.
  void reduce(const ParameterSet& set, Stream& stream);
  /// Every rank gets each range of `weights`, laid out as the set's, from its home, and a loss
  /// scale that adapts itself from rank 0.
  void hand_out(const ParameterSet& set, const Tensor& weights, Stream& stream);

  /// Whether this rank is to update its arenas between the two. With one home only that does. With
  /// several each updates all of its arenas, of which only its own ranges are handed out: an
  /// optimizer knows no parts, and replicas update all weights just so.
  bool updates() const noexcept;
  /// Rank 0's optimizer remembers what belongs to all weights.
  bool rank_0_knows_all() const noexcept { return placement_ == Placement::first; }

 private:
  void settle(const ParameterSet& set);

  Collective& collective_;
  Optimizer& optimizer_;
  const Placement placement_;
  bool settled_ = false;
  std::vector<std::vector<ArenaRange>> ranges_;  // by home
};

}  // namespace penstock
