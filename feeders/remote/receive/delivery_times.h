// SPDX-License-Identifier: Apache-2.0
// Sums the times that batches carry (feeders/remote/framed_format.md), for batches that arrive in
// the window. The sums are counters of stages outside this process (bench/run/run_window.h), which
// give means over the window. hand_off_times.h has the distributions over the whole run.
//
// If the producer's clock is unknown, a transit time is counted relative to the shortest one seen
// so far.
//
// Batches that were ready before this object existed are left out. Producers that outlive their
// consumers hold such batches, which waited without a consumer.
//
// Thread-safety: any thread. An unknown clock or a wider bound takes a lock.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "dataflow/probe.h"
#include "feeders/remote/receive/clock_bounds.h"
#include "feeders/remote/wire/framed_header.h"

namespace penstock::remote {

class DeliveryTimes {
 public:
  static constexpr std::size_t kProducers = 1024;

  /// Made with the components of the run, at CLOCK_REALTIME `made_ns`. The probe outlives this
  /// object.
  explicit DeliveryTimes(Probe& probe, std::int64_t made_ns = wall_clock_ns());

  /// Adds a batch that was received at `received_ns` (CLOCK_REALTIME of this machine, in ns).
  /// `ahead`: how far the producer's clock is ahead, if known. Leaves out batches without times of
  /// ready and sent, and batches with impossible times.
  void add(const FramedHeader& header, std::int64_t received_ns,
           const std::optional<ClockBounds::Estimate>& ahead);

 private:
  std::optional<std::int64_t> way_beyond_shortest(std::uint64_t producer, std::int64_t way);
  void note_clock(std::uint64_t producer, const std::optional<ClockBounds::Estimate>& ahead);

  Probe& probe_;
  const std::int64_t made_ns_;
  StageCounters &making_, &holding_, &carrying_;
  std::mutex mutex_;
  // All below under mutex_.
  std::map<std::uint64_t, std::int64_t> shortest_;  // transit times, may be below 0
  std::map<std::uint64_t, double> bounds_;
  bool unknown_noted_ = false;
};

}  // namespace penstock::remote
