// SPDX-License-Identifier: Apache-2.0
// Limits a supplier of batches to a given rate, as a loader of that rate would supply them: each
// batch takes its time to make, and a loader that is held up has one batch ready, not more.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string_view>

#include "dataflow/clock.h"

namespace penstock {

/// Bounds of a rate, in images per second. Beyond them a batch's time overflows or is 0. Outside
/// them checked_rate throws ConfigError that names `what`.
inline constexpr double kLowestRate = 1e-3, kHighestRate = 1e9;
double checked_rate(double img_per_s, std::string_view what);

class Pace {
 public:
  /// Time starts now. `img_per_s` 0 means no limit. `clock` must outlive the pace.
  Pace(Clock& clock, double img_per_s)
      : clock_(clock), img_per_s_(img_per_s), begin_(clock.now()) {}

  /// Blocks until `images` more are due, or a stop is requested. Due times are multiples of the
  /// rate since the start, so that late wake-ups do not add up. A call that comes more than one
  /// batch after its due time restarts the schedule: it does not make up for time in which no batch
  /// was taken.
  void await(std::int64_t images, std::stop_token stop);

 private:
  Time due() const;

  Clock& clock_;
  const double img_per_s_;
  Time begin_;
  std::int64_t images_ = 0;  // due since begin_
};

}  // namespace penstock
