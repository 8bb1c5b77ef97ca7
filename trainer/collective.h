// SPDX-License-Identifier: Apache-2.0
// The interface for the exchange among the ranks of a run, which are threads or processes. Every
// rank calls the same members in the same order, each from its own thread.
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

/// The streams of all ranks meet in each call: work enqueued after the call starts only when every
/// rank has reached it. Tensors are f32 and have equal counts on all ranks; with an empty tensor
/// the ranks only meet. Each call throws Error if the run is being stopped.
class Collective {
 public:
  virtual ~Collective() = default;
  virtual World world() const noexcept = 0;
  /// True: the calls only enqueue work, or host streams keep them, so they may be part of a
  /// Program. False: they are called again for each step.
  virtual bool recordable() const noexcept = 0;
  /// True: it is possible, and faster, to enqueue sums of a part of the gradients on a second
  /// stream during backward.
  virtual bool overlaps() const noexcept { return false; }
  /// Every rank's tensor becomes the sum over all ranks, with the same bits on each. Ranks that
  /// share memory add in rank order. Message algorithms, MPI and vendor libraries have their own
  /// orders, which may differ between elements. If the exchange uses 16 bits
  /// (collectives/exchange_choice.h), gradients and sums are rounded to 16 bits.
  virtual void all_reduce_sum(Tensor tensor, Stream& stream) = 0;
  /// The root's tensor becomes the sum over all ranks; the others keep their tensors.
  virtual void reduce_sum(Tensor tensor, std::int32_t root, Stream& stream) = 0;
  /// Every rank's tensor becomes the root's.
  virtual void broadcast(Tensor tensor, std::int32_t root, Stream& stream) = 0;
};

/// Ranks of one process that exchange with each other. Outlives the collectives that it makes.
class CollectiveGroup {
 public:
  virtual ~CollectiveGroup() = default;
  virtual std::unique_ptr<Collective> join(std::int32_t rank) = 0;
  /// Describes the exchange for readers of the result; empty: the usual one.
  virtual std::string how() const { return {}; }
};

}  // namespace penstock
