// SPDX-License-Identifier: Apache-2.0
// Copies batches from a host ring into a device ring on a separate copy stream: "GPU prefetch", or
// staging. Each reader of the host ring has one stager. Every device has one, with every host
// feeder.
//
// It takes a device slot first and a batch second, so that no device hoards batches that another
// one could use.
//
// It gives a host slot back once the copy is enqueued, or later (Holding).
#pragma once

#include <cstddef>
#include <cstdint>
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

/// How long a stager keeps the host slot of a batch after it has enqueued the copy. A producer that
/// fills one slot is thereby asked for its next batch when a training loop would ask for it.
enum class Holding : std::uint8_t {
  none,
  launched,  ///< until a device slot is free for the next batch: with one slot, until its step has
             ///< been launched
  read,      ///< until the step that read it has ended; the device ring has one slot
};

class Stager {
 public:
  /// Copies the batches that `host` holds for `reader` into `device_ring`, whose memory belongs to
  /// `device`. The stager borrows all of them for its lifetime. Marks: "wait for a slot", "wait for
  /// a batch" and "copy". "copy" is the copy itself if the host copies, and otherwise the time to
  /// enqueue it.
  Stager(BatchRing& host, std::size_t reader, BatchRing& device_ring, Device& device,
         const Marks& marks = {}, Holding holding = Holding::none);

  /// Keeps the counters of the staging stage. Call it before run(). Every copy is timed. Its wall
  /// time is the device's time between an event before it and an event after it; its CPU time is
  /// this thread's. If the host copies, the copy call also waits until the device is done with the
  /// slot; that counts as a wait for room.
  void count(StageCounters& stage, const Clock& clock);

  /// Runs until the host ring ends, the device ring closes, or a stop is requested. Passes the end
  /// of data, or the failure, on to the device ring, and waits for its copies. Throws nothing.
  void run(std::stop_token stop) noexcept;

 private:
  /// An enqueued copy, and the host's time to enqueue it.
  struct Timing {
    std::unique_ptr<Event> begun, done;
    bool open = false;
    Nanoseconds cpu{}, wall{};
  };
  void copy_all(std::stop_token stop);
  void give_back(WriteLease& next);
  ReadLease copy(ReadLease from, WriteLease to);
  void enqueue(const Batch& from, Batch& to);
  Timing& next_timing();

  BatchRing& host_;
  const std::size_t reader_;
  BatchRing& device_ring_;
  Device& device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> settled_;
  const Marks marks_;
  const Holding holding_;
  ReadLease held_;
  StageCounters* stage_ = nullptr;  // null: not counted
  const Clock* clock_ = nullptr;
  StageTimer waits_;
  std::vector<Timing> timings_;  // a ring over copies, long enough that the oldest is surely done
  std::size_t copies_ = 0;
};

}  // namespace penstock
