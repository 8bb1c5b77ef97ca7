// SPDX-License-Identifier: Apache-2.0
// Whoever puts somebody else's bytes into a slot of a ring (batch_ring.h) in place of its own, and
// hears when nobody reads them any more.
#pragma once

#include <cstdint>

#include "dataflow/device.h"

namespace penstock {

class Lender {
 public:
  virtual ~Lender() = default;
  /// The loan in this slot is over: read, or given back without having been read. `read` is reached
  /// once the device is done with it, and stays so until the slot is published again; null: all
  /// are. It is the ring's, and lives no longer.
  ///
  /// Called once for each loan, on whichever thread ends it, under the ring's lock and before the
  /// slot is free: it takes note, and neither waits nor calls the ring.
  virtual void returned(std::int32_t slot, const Event* read) noexcept = 0;
};

}  // namespace penstock
