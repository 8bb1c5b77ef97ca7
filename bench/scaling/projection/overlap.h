// SPDX-License-Identifier: Apache-2.0
// How much of an exchange shows. Pure functions; milliseconds.
#pragma once

#include <functional>
#include <span>

namespace penstock {

/// A bucket of gradients of a step.
struct ReadyBucket {
  double bytes = 0;
  double lead_ms = 0;  ///< from the moment when it is complete to the end of backward
};

struct ExchangeCourse {
  double busy_ms = 0;     ///< in the exchange
  double exposed_ms = 0;  ///< of it, behind the end of backward
};

/// Each bucket begins once it is complete and the one before is done:
/// c_j = max(c_(j-1), t_j) + T_j; exposed = max(0, c_last - T_b). Buckets come in the order of
/// their exchange; `exchange_ms` gives what one of so many bytes takes.
ExchangeCourse overlapped(std::span<const ReadyBucket> buckets,
                          const std::function<double(double bytes)>& exchange_ms);

/// The closed form: exposed = max(0, exchange - share * compute).
ExchangeCourse hidden_share(double exchange_ms, double compute_ms, double share);

}  // namespace penstock
