// SPDX-License-Identifier: Apache-2.0
// Computes how much of an exchange is not hidden by compute. Pure functions; milliseconds.
#pragma once

#include <functional>
#include <span>

namespace penstock::scaling {

/// A bucket of gradients in one step.
struct ReadyBucket {
  double bytes = 0;
  double lead_ms = 0;  ///< from its completion to the end of backward
};

struct ExchangeCourse {
  double busy_ms = 0;     ///< time spent in the exchange
  double exposed_ms = 0;  ///< the part of busy_ms after the end of backward
};

/// Each bucket starts when it is complete and the previous bucket is done:
/// c_j = max(c_(j-1), t_j) + T_j; exposed = max(0, c_last - T_b). Buckets are in the order of their
/// exchange. `exchange_ms` returns the time for one bucket of the given bytes.
ExchangeCourse overlapped(std::span<const ReadyBucket> buckets,
                          const std::function<double(double bytes)>& exchange_ms);

/// The closed form: exposed = max(0, exchange - share * compute).
ExchangeCourse hidden_share(double exchange_ms, double compute_ms, double share);

}  // namespace penstock::scaling
