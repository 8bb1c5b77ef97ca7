// SPDX-License-Identifier: Apache-2.0
// What batches' own times say (feeders/framed_format.md): how long they took to make, waited for
// their producer's socket, and were on their way. On one clock, that of one machine, the way is the
// difference between both ends. Clocks of others are off by a constant that nobody knows: their
// ways are those beyond the shortest one seen.
//
// Keeps kSamples batches, drawn at random from all, and the shortest way of kProducers producers;
// what others send is not timed. Times that run backwards are left out.
//
// Thread-safety: any thread; each call takes one lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "dataflow/wire/framed_header.h"

namespace penstock {

/// Of all batches that said when they were begun, ready and sent. In seconds.
struct HandOffSummary {
  std::uint64_t batches = 0;                   ///< that were timed
  std::uint64_t other_clocks = 0;              ///< of them, by producers of other clocks
  double making_median = 0, making_p99 = 0;    ///< from begun to ready; of those that said both
  double waiting_median = 0, waiting_p99 = 0;  ///< from ready to sent
  double way_median = 0, way_p99 = 0;          ///< from sent to received
};

class HandOffTimes {
 public:
  static constexpr std::size_t kSamples = 8192;
  static constexpr std::size_t kProducers = 1024;

  /// A batch was received at that time of this machine's CLOCK_REALTIME, in ns. `one_clock`: its
  /// producer has the same one.
  void add(const FramedHeader& header, std::int64_t received_ns, bool one_clock);
  HandOffSummary summary() const;

 private:
  struct Sample {
    std::uint64_t producer = 0;                      // 0: of this machine's clock
    std::int64_t making = -1, waiting = 0, way = 0;  // ns; -1: not known
  };

  mutable std::mutex mutex_;
  // All below under mutex_.
  std::vector<Sample> samples_;
  std::map<std::uint64_t, std::int64_t> shortest_;  // ways of other clocks, which may be below 0
  std::uint64_t batches_ = 0, other_clocks_ = 0;
};

/// CLOCK_REALTIME, in ns since 1970.
std::int64_t realtime_ns() noexcept;

}  // namespace penstock
