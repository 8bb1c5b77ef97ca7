// SPDX-License-Identifier: Apache-2.0
// A barrier for ranks that are threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <stop_token>
#include <utility>

#include "dataflow/clock.h"
#include "dataflow/error.h"

namespace penstock::collectives {

/// Any number of threads may use it; `ranks` threads take part in each meeting.
class Meeting {
 public:
  Meeting(std::size_t ranks, Clock& clock, std::stop_token stop)
      : ranks_(ranks), clock_(clock), stop_(std::move(stop)) {}
  /// Blocks until every rank called it. Throws Error on a stop request.
  void meet() {
    std::unique_lock lock(mutex_);
    const std::uint64_t generation = generation_;
    if (++waiting_ == ranks_) {
      waiting_ = 0;
      ++generation_;
      clock_.wake(gate_);
      return;
    }
    if (!clock_.wait(lock, gate_, stop_, [&] { return generation_ != generation; })) {
      throw Error("the exchange between ranks was abandoned: the run is stopping");
    }
  }

 private:
  const std::size_t ranks_;
  Clock& clock_;
  const std::stop_token stop_;
  std::mutex mutex_;
  Gate gate_;  // all below under mutex_
  std::size_t waiting_ = 0;
  std::uint64_t generation_ = 0;
};

}  // namespace penstock::collectives
