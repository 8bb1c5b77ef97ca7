// SPDX-License-Identifier: Apache-2.0
// The homes of a parameter server whose ranks are also its clients. A home is the rank that adds
// the gradients of a part of the arenas, applies them and distributes the weights. Every rank calls
// the same members in the same order.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/placement.h"
#include "trainer/update_strategy.h"

namespace penstock::updates {

class Homes {
 public:
  /// Throws ConfigError if the placement gives the context's optimizer less than it needs.
  Homes(const UpdateContext& context, Placement placement);

  /// Gives the home of each range the sum over all ranks. On other ranks the gradients of the range
  /// are undefined.
  void reduce(const ParameterSet& set, Stream& stream);
  /// Gives every rank each range of `weights`, laid out as the set's weights, from its home. Also
  /// copies an automatic loss scale from rank 0.
  void hand_out(const ParameterSet& set, const Tensor& weights, Stream& stream);

  /// Whether this rank updates its arenas between the two calls. With one home, only the home does.
  /// With several, every rank updates all of its arenas, but only its own ranges are distributed:
  /// an optimizer cannot update parts of a set, and replicas also update all weights.
  bool updates() const noexcept;
  /// Whether rank 0's optimizer has the state of all weights.
  bool rank_0_knows_all() const noexcept { return placement_ == Placement::first; }

 private:
  void settle(const ParameterSet& set);

  Collective& collective_;
  Optimizer& optimizer_;
  const Placement placement_;
  bool settled_ = false;
  std::vector<std::vector<ArenaRange>> ranges_;  // by home
};

}  // namespace penstock::updates
