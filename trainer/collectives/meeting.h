// SPDX-License-Identifier: Apache-2.0
// A barrier for ranks that are threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <stop_token>

#include "dataflow/clock.h"

namespace penstock::collectives {

/// Any number of threads may use it; `ranks` threads take part in each meeting.
class Meeting {
 public:
  Meeting(std::size_t ranks, Clock& clock, std::stop_token stop)
      : ranks_(ranks), clock_(clock), stop_(std::move(stop)) {}
  /// Blocks until every rank called it. Throws Error on a stop request.
  void meet();

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
