// SPDX-License-Identifier: Apache-2.0
// Exchange among the ranks of a run, whether they are threads or processes. Every rank calls the
// same members in the same order, each from its own thread.
#pragma once

#include <cstdint>
#include <memory>

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
  /// Every rank's tensor becomes the sum over all ranks, the same bits on each: added in rank
  /// order, unless a vendor's library adds.
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
};

}  // namespace penstock
