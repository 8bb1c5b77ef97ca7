// SPDX-License-Identifier: Apache-2.0
// Moves batches from a host ring into a device ring on a copy stream of its own: "GPU prefetch", or
// staging. One stager per reader of the host ring; it stands before every device, on every host
// feeder.
//
// It takes a device slot first and a batch second, so that no device hoards batches that another
// one could use.
#pragma once

#include <cstddef>
#include <memory>
#include <stop_token>

#include "dataflow/batch_ring.h"
#include "dataflow/device.h"
#include "dataflow/mark.h"

namespace penstock {

class Stager {
 public:
  /// Copies what `host` holds for `reader` into `device_ring`, whose memory belongs to `device`.
  /// All are borrowed for the stager's life. Marks: "wait for a slot", "wait for a batch" and
  /// "copy": the copy itself where the host copies, else the time to enqueue it.
  Stager(BatchRing& host, std::size_t reader, BatchRing& device_ring, Device& device,
         const Marks& marks = {});

  /// Runs until the host ring ends, the device ring closes, or a stop is requested. Passes the end
  /// of the data, or its failure, on to the device ring. Throws nothing.
  void run(std::stop_token stop) noexcept;

 private:
  void copy_all(std::stop_token stop);
  void copy(ReadLease from, WriteLease to);

  BatchRing& host_;
  const std::size_t reader_;
  BatchRing& device_ring_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> settled_;
  const Marks marks_;
};

}  // namespace penstock
