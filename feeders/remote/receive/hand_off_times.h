// SPDX-License-Identifier: Apache-2.0
// Distributions of the times that batches carry (feeders/remote/framed_format.md): how long a batch
// was made, waited for its producer's socket, and was in transit. If both ends use the clock of one
// machine, the transit time is the difference of their times. Another machine's clock has an
// unknown constant offset, so a transit time is then counted relative to the shortest one seen.
//
// Keeps kSamples batches, drawn at random from all, and the shortest transit times of kProducers
// producers. Batches of further producers are not timed. Times that run backwards are left out.
//
// Thread-safety: any thread; each call takes one lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "feeders/remote/wire/framed_header.h"

namespace penstock::remote {

/// Over all batches that say when they were ready and sent. In seconds.
struct HandOffSummary {
  std::uint64_t batches = 0;                   ///< timed batches
  std::uint64_t other_clocks = 0;              ///< of them, timed by another machine's clock
  double making_median = 0, making_p99 = 0;    ///< from begun to ready; if both are known
  double waiting_median = 0, waiting_p99 = 0;  ///< from ready to sent
  double way_median = 0, way_p99 = 0;          ///< from sent to received
};

class HandOffTimes {
 public:
  static constexpr std::size_t kSamples = 8192;
  static constexpr std::size_t kProducers = 1024;

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

/// CLOCK_REALTIME, in ns since 1970.
std::int64_t realtime_ns() noexcept;

}  // namespace penstock::remote
