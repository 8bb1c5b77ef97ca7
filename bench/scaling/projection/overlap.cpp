// SPDX-License-Identifier: Apache-2.0
#include "bench/scaling/projection/overlap.h"

#include <algorithm>
#include <limits>

namespace penstock::scaling {

ExchangeCourse overlapped(std::span<const ReadyBucket> buckets,
                          const std::function<double(double bytes)>& exchange_ms) {
  ExchangeCourse course;
  double done = -std::numeric_limits<double>::infinity();  // 0: the end of backward
  for (const ReadyBucket& bucket : buckets) {
    const double takes = exchange_ms(bucket.bytes);
    done = std::max(done, -bucket.lead_ms) + takes;
    course.busy_ms += takes;
  }
  course.exposed_ms = std::max(0.0, done);
  return course;
}

ExchangeCourse hidden_share(double exchange_ms, double compute_ms, double share) {
  return {exchange_ms, std::max(0.0, exchange_ms - share * compute_ms)};
}

}  // namespace penstock::scaling
