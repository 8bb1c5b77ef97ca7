// SPDX-License-Identifier: Apache-2.0
// What batches' own times (feeders/framed_format.md) say of those that came in the window: sums, as
// stages of the run that are nobody's here (bench/stage_use.h), so that means over the window come
// of them. hand_off_times.h has their distributions over the whole run.
//
// Of a producer whose clock is not known, ways are those beyond the shortest one that had come
// until then.
//
// Left out are batches that were ready before it was made: producers that outlive their consumers
// hold some, which waited for nobody.
//
// Thread-safety: any thread; clocks that are not known, and wider bounds, take a lock.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "dataflow/probe.h"
#include "dataflow/wire/framed_header.h"
#include "feeders/clock_bounds.h"

namespace penstock {

class DeliveryTimes {
 public:
  static constexpr std::size_t kProducers = 1024;

  /// While components are made, at that time of CLOCK_REALTIME. The probe outlives it.
  explicit DeliveryTimes(Probe& probe, std::int64_t made_ns = wall_clock_ns());

  /// A batch was received at that time of this machine's CLOCK_REALTIME, in ns. `ahead`: the
  /// producer's clock, as far as it is known. Batches that said not when they were ready and sent,
  /// or whose times cannot be, are left out.
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
  std::map<std::uint64_t, std::int64_t> shortest_;  // ways of other clocks, which may be below 0
  std::map<std::uint64_t, double> bounds_;
  bool unknown_noted_ = false;
};

}  // namespace penstock
