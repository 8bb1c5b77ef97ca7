// SPDX-License-Identifier: Apache-2.0
// An owner puts its own pixels into a slot of a ring (batch_ring.h) in place of the slot's own, and
// hears when no reader uses them any more.
#pragma once

#include <cstdint>

#include "dataflow/device.h"

namespace penstock {

class ForeignPixels {
 public:
  virtual ~ForeignPixels() = default;
  /// The loan in this slot is over: the batch was read, or the slot was freed without being read.
  /// `read` is reached once the device is done with the pixels, and stays so until the slot is
  /// published again; null: every read is done already. The ring owns `read`; do not use it after
  /// the ring is destroyed.
  ///
  /// The ring calls this once for each loan, on the thread that ends it, under the ring's lock and
  /// before the slot is free. It must only take note: it must neither block nor call the ring.
  virtual void returned(std::int32_t slot, const Event* read) noexcept = 0;
};

}  // namespace penstock
