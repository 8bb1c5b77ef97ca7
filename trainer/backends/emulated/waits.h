// SPDX-License-Identifier: Apache-2.0
// Statistics of the host's threads that waited for an emulated device: how late they woke, and how
// long they spun.
//
// Thread-safety: any thread may call anything; nothing locks or allocates.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "dataflow/clock.h"

namespace penstock::emulated {

class Waits {
 public:
  void add(Nanoseconds late, Nanoseconds spun) noexcept {
    const auto us = static_cast<std::size_t>(std::max<std::int64_t>(0, late.count() / 1000));
    buckets_[std::min(us, buckets_.size() - 1)].fetch_add(1, std::memory_order_relaxed);
    late_ns_.fetch_add(late.count(), std::memory_order_relaxed);
    spun_ns_.fetch_add(spun.count(), std::memory_order_relaxed);
    std::int64_t longest = longest_ns_.load(std::memory_order_relaxed);
    while (late.count() > longest && !longest_ns_.compare_exchange_weak(longest, late.count())) {
    }
  }

  /// The quantile `share` of the delays, in whole microseconds; delays beyond 2 ms count as 2 ms. 0
  /// without delays.
  double late_us_quantile(double share) const noexcept {
    const auto wanted = static_cast<std::uint64_t>(std::ceil(share * count()));
    std::uint64_t seen = 0;
    for (std::size_t us = 0; us < buckets_.size(); ++us) {
      seen += buckets_[us];
      if (seen >= wanted) return static_cast<double>(us);
    }
    return 0;
  }
  double late_us_mean() const noexcept {
    return count() > 0 ? static_cast<double>(late_ns_) / 1e3 / count() : 0;
  }
  double late_us_longest() const noexcept { return static_cast<double>(longest_ns_) / 1e3; }
  double spun_s() const noexcept { return static_cast<double>(spun_ns_) / 1e9; }

 private:
  double count() const noexcept {
    std::uint64_t total = 0;
    for (const auto& bucket : buckets_) total += bucket;
    return static_cast<double>(total);
  }

  std::array<std::atomic<std::uint64_t>, 2000> buckets_{};
  std::atomic<std::int64_t> late_ns_{0}, spun_ns_{0}, longest_ns_{0};
};

}  // namespace penstock::emulated
