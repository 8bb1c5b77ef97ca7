// SPDX-License-Identifier: Apache-2.0
// Holds whoever supplies batches to a stated rate, as a loader of that rate would supply them:
// each batch takes its time to make, and a loader that is held up has one batch ready, no more.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string_view>

#include "dataflow/clock.h"

namespace penstock {

/// Bounds of a stated rate, in images per second: beyond them a batch's time overflows or is 0.
/// checked_rate throws ConfigError outside them, and names `what`.
inline constexpr double kLowestRate = 1e-3, kHighestRate = 1e9;
double checked_rate(double img_per_s, std::string_view what);

class Pace {
 public:
  /// Time begins to count now. `img_per_s` 0: no limit. `clock` outlives the pace.
  Pace(Clock& clock, double img_per_s)
      : clock_(clock), img_per_s_(img_per_s), begin_(clock.now()) {}

  /// Blocks until `images` more are due, or a stop is requested. Due times are multiples of the
  /// rate since the beginning, so that late wake-ups do not add up. Whoever comes later than one
  /// batch after its due time begins anew: time in which nobody took a batch is not made up for.
  void await(std::int64_t images, std::stop_token stop);

 private:
  Time due() const;

  Clock& clock_;
  const double img_per_s_;
  Time begin_;
  std::int64_t images_ = 0;  // due since begin_
};

}  // namespace penstock
