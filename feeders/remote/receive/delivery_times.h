// SPDX-License-Identifier: Apache-2.0
// The times that batches carry (feeders/remote/framed_format.md): how long a batch was made, waited
// for its producer's socket, and was in transit. HandOffTimes keeps distributions over the whole
// run, DeliveryTimes sums for the window.
//
// If both ends use the clock of one machine, the transit time is the difference of their times.
// Another machine's clock has an unknown offset, so a transit time is then counted relative to the
// shortest one seen, unless the offset was estimated.
//
// Thread-safety: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "dataflow/probe.h"
#include "feeders/remote/receive/clock_bounds.h"
#include "feeders/remote/wire/framed_header.h"

namespace penstock::remote {

/// Producers with other clocks whose shortest transit times are kept. Batches of further ones are
/// not timed.
inline constexpr std::size_t kTimedProducers = 1024;

/// Over all batches that say when they were ready and sent. In seconds.
struct HandOffSummary {
  struct Times {
    double median = 0, p99 = 0;
  };
  std::uint64_t batches = 0;       ///< timed batches
  std::uint64_t other_clocks = 0;  ///< of them, timed by another machine's clock
  Times making{};                  ///< from begun to ready; if both are known
  Times waiting{};                 ///< from ready to sent
  Times way{};                     ///< from sent to received
};

/// Keeps kSamples batches, drawn at random from all. Times that run backwards are left out. Each
/// call takes one lock.
class HandOffTimes {
 public:
  static constexpr std::size_t kSamples = 8192;

  /// Adds a batch that was received at `received_ns` (CLOCK_REALTIME of this machine, in ns).
  /// `one_clock`: its producer uses the same clock.
  void add(const FramedHeader& header, std::int64_t received_ns, bool one_clock);
  HandOffSummary summary() const;

 private:
  struct Sample {
    std::uint64_t producer = 0;                      // 0: uses this machine's clock
    std::int64_t making = -1, waiting = 0, way = 0;  // ns; -1: not known
  };

  mutable std::mutex mutex_;
  // All below under mutex_.
  std::vector<Sample> samples_;
  std::map<std::uint64_t, std::int64_t> shortest_;  // transit times, may be below 0
  std::uint64_t batches_ = 0, other_clocks_ = 0;
};

/// Sums over the batches that arrive in the window, in counters of stages outside this process
/// (bench/run/run_window.h), which give means. Batches that were ready before this object existed
/// are left out: producers that outlive their consumers hold such batches, which waited without a
/// consumer. An unknown clock or a wider bound takes a lock.
class DeliveryTimes {
 public:
  /// Made with the components of the run, at CLOCK_REALTIME `made_ns`. The probe outlives this
  /// object.
  explicit DeliveryTimes(Probe& probe, std::int64_t made_ns = wall_clock_ns());

  /// Adds a batch that was received at `received_ns` (CLOCK_REALTIME of this machine, in ns).
  /// `ahead`: how far the producer's clock is ahead, if known. Leaves out batches without times of
  /// ready and sent, and batches with impossible times.
  void add(const FramedHeader& header, std::int64_t received_ns,
           const std::optional<ClockBounds::Estimate>& ahead);

 private:
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
