// SPDX-License-Identifier: Apache-2.0
// How full a ring is over time, and how long its producers and readers wait. The ring tells its
// monitor of every change, and the monitor integrates over time while it watches.
//
// Thread-safety: any thread may call the functions of a RingMonitor that do not say otherwise. They
// take the ring's mutex. Only watch() and filled_over_time() allocate.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "dataflow/clock.h"
#include "dataflow/trace_log.h"

namespace penstock {

/// How full something was over time, in bounded memory. Bins of equal width hold the integral of
/// the level. When all bins are used, pairs are joined and the width doubles. One thread at a time;
/// only means() allocates.
class LevelHistory {
 public:
  static constexpr std::size_t kBins = 400;
  static constexpr Nanoseconds kFirstWidth = std::chrono::microseconds(100);

  /// The level was `level` for `duration`, directly after all that was added before.
  void add(std::int64_t level, Nanoseconds duration);
  void clear() { *this = LevelHistory(); }

  /// Mean levels in `parts` equal parts of the whole length. If an edge is inside a bin, the bin
  /// counts as having its mean level throughout. Empty if nothing was added.
  std::vector<double> means(std::size_t parts) const;

 private:
  void join_pairs();
  double integral_until(double ns) const;

  Nanoseconds width_ = kFirstWidth;
  Nanoseconds length_{};
  std::array<std::int64_t, kBins> integrals_{};  // level * ns
};

/// The state of a ring that its monitor watches.
struct RingLevels {
  std::uint64_t published = 0;  ///< batches since construction
  std::uint64_t filled = 0;     ///< slots published, but not yet taken by a reader
  std::uint64_t free = 0;       ///< slots that a producer may take
  std::int64_t waiting_producers = 0, waiting_readers = 0;  ///< threads
};

struct RingStats {
  std::uint64_t published = 0;     ///< batches since construction
  std::uint64_t filled_slots = 0;  ///< published, but not yet taken by a reader
  // While the ring was watched, up to the end of watching or else to the last change:
  Nanoseconds watched{};
  Nanoseconds filled_time{};    ///< the number of filled slots, integrated over time
  Nanoseconds empty_time{};     ///< time in which no slot was filled
  Nanoseconds full_time{};      ///< time in which no slot was free
  Nanoseconds producer_wait{};  ///< summed over the threads that block in acquire: back-pressure
  Nanoseconds consumer_wait{};  ///< summed over the threads that block in next: starvation
};

class RingMonitor {
 public:
  /// `mutex` protects `levels`. All three must outlive the monitor.
  RingMonitor(const RingLevels& levels, std::mutex& mutex, Clock& clock)
      : levels_(levels), mutex_(mutex), clock_(clock) {}

  RingStats stats() const;

  /// Starts or continues watching. `afresh` forgets what was seen before.
  void watch(bool afresh);
  void stop_watching();
  /// The mean number of filled slots in each of `parts` equal parts of the watched time.
  std::vector<double> filled_over_time(std::size_t parts) const;

  /// While `log` is open, every change in the number of filled slots goes there, under the ring
  /// number `ring`. Call it before any thread uses the ring. The log must outlive the ring.
  void log_depths(DepthLog& log, std::int32_t ring);
  /// Logs the current number of filled slots too. Needs log_depths.
  void log_depth();

  /// For the ring, under its mutex: adds up the time since the last call. The ring calls it before
  /// each change of its levels, and only then.
  void account() noexcept;
  /// For the ring, under its mutex, after each change of the number of filled slots.
  void note_depth() noexcept;

 private:
  const RingLevels& levels_;
  std::mutex& mutex_;
  Clock& clock_;
  // mutex_ protects everything below.
  bool watching_ = false;
  Time accounted_{};  // the sums hold the time up to here
  RingStats sums_{};
  LevelHistory history_;
  DepthLog* depths_ = nullptr;
  std::int32_t number_ = 0;  // the ring's number in depths_
};

}  // namespace penstock
