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
#include <vector>

#include "dataflow/batch_ring.h"
#include "dataflow/clock.h"
#include "dataflow/device.h"
#include "dataflow/mark.h"
#include "dataflow/probe.h"
#include "dataflow/stage_timer.h"

namespace penstock {

class Stager {
 public:
  /// Copies what `host` holds for `reader` into `device_ring`, whose memory belongs to `device`.
  /// All are borrowed for the stager's life. Marks: "wait for a slot", "wait for a batch" and
  /// "copy": the copy itself where the host copies, else the time to enqueue it.
  Stager(BatchRing& host, std::size_t reader, BatchRing& device_ring, Device& device,
         const Marks& marks = {});

  /// Keeps the counters of the stage that it is, before it runs. Every copy is timed: its wall time
  /// is that between events in front of it and behind it, on the device, its CPU time this
  /// thread's. Where the host copies, it waits inside for the device to be done with the slot; that
  /// is a wait for room.
  void count(StageCounters& stage, const Clock& clock);

  /// Runs until the host ring ends, the device ring closes, or a stop is requested. Passes the end
  /// of the data, or its failure, on to the device ring. Throws nothing.
  void run(std::stop_token stop) noexcept;

 private:
  /// A copy that is enqueued, and what the host spent on that.
  struct Timing {
    std::unique_ptr<Event> begun, done;
    bool open = false;
    Nanoseconds cpu{}, wall{};
  };
  void copy_all(std::stop_token stop);
  void copy(ReadLease from, WriteLease to);
  void enqueue(const Batch& from, Batch& to);
  Timing& next_timing();

  BatchRing& host_;
  const std::size_t reader_;
  BatchRing& device_ring_;
  Device& device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> settled_;
  const Marks marks_;
  StageCounters* stage_ = nullptr;  // null: not counted
  const Clock* clock_ = nullptr;
  StageTimer waits_;
  std::vector<Timing> timings_;  // a ring over copies: until the device has surely done them
  std::size_t copies_ = 0;
};

}  // namespace penstock
