// SPDX-License-Identifier: Apache-2.0
// Exchange among the ranks of a run, whether they are threads or processes. Every rank calls the
// same members in the same order, each from its own thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "dataflow/device.h"
#include "trainer/backend.h"

namespace penstock {

struct World {
  std::int32_t rank = 0, size = 1;
};

/// In each call the streams of all ranks meet: nothing enqueued behind it starts before every rank
/// got here. Tensors are f32 and of equal counts on all ranks; an empty one only meets. Each throws
/// Error when the run is being stopped.
class Collective {
 public:
  virtual ~Collective() = default;
  virtual World world() const noexcept = 0;
  /// Its calls only enqueue, or host streams keep them: they may be part of a Program. Otherwise
  /// they are made again for each step.
  virtual bool recordable() const noexcept = 0;
  /// Sums of a part of the gradients may be enqueued on a second stream while backward goes on, and
  /// gain by it.
  virtual bool overlaps() const noexcept { return false; }
  /// Every rank's tensor becomes the sum over all ranks, the same bits on each. Ranks that share
  /// memory add in the order of ranks; algorithms in messages, MPI and vendors' libraries have
  /// orders of their own, which may differ between elements. Where the exchange is of 16 bits, see
  /// collectives/exchange_choice.h, gradients and sums are rounded to those.
  virtual void all_reduce_sum(Tensor tensor, Stream& stream) = 0;
  /// The root's tensor becomes that sum; the others keep theirs.
  virtual void reduce_sum(Tensor tensor, std::int32_t root, Stream& stream) = 0;
  /// Every rank's tensor becomes the root's.
  virtual void broadcast(Tensor tensor, std::int32_t root, Stream& stream) = 0;
};

/// Ranks of one process that exchange with each other. Outlives the collectives that it makes.
class CollectiveGroup {
 public:
  virtual ~CollectiveGroup() = default;
  virtual std::unique_ptr<Collective> join(std::int32_t rank) = 0;
  /// How they exchange, in words for who reads the result; empty: as it always is.
  virtual std::string how() const { return {}; }
};

}  // namespace penstock
