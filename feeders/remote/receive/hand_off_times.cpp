// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/receive/hand_off_times.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "dataflow/random.h"

namespace penstock::remote {
namespace {

/// Longer times are ignored, so that the difference of two fits.
constexpr std::int64_t kLongest = std::int64_t{1} << 61;

/// Empty: the difference does not fit.
std::optional<std::int64_t> difference(std::int64_t later, std::int64_t earlier) noexcept {
  std::int64_t result = 0;
  if (__builtin_sub_overflow(later, earlier, &result) || result > kLongest || result < -kLongest) {
    return std::nullopt;
  }
  return result;
}

struct Distribution {
  double median = 0, p99 = 0;
};

/// Distribution of times in ns, by nearest rank.
Distribution distribution_of(std::vector<double>& times) {
  if (times.empty()) return {};
  const auto rank = [&](double share) {
    const auto count = static_cast<double>(times.size());
    const auto at = static_cast<std::ptrdiff_t>(std::max(0.0, std::ceil(share * count) - 1));
    std::nth_element(times.begin(), times.begin() + at, times.end());
    return 1e-9 * times[static_cast<std::size_t>(at)];
  };
  return {rank(0.5), rank(0.99)};
}

}  // namespace

void HandOffTimes::add(const FramedHeader& header, std::int64_t received_ns, bool one_clock) {
  if (header.ready_ns == 0 || header.sent_ns == 0) return;
  const auto waiting = difference(header.sent_ns, header.ready_ns);
  const auto way = difference(received_ns, header.sent_ns);
  const bool is_begun = header.begun_ns != 0;
  const auto making = difference(header.ready_ns, is_begun ? header.begun_ns : header.ready_ns);
  if (!waiting || !way || !making || *waiting < 0 || *making < 0 || (one_clock && *way < 0)) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if (!one_clock) {
    const auto found = shortest_.find(header.producer);
    if (found != shortest_.end()) {
      found->second = std::min(found->second, *way);
    } else if (shortest_.size() < kProducers) {
      shortest_[header.producer] = *way;
    } else {
      return;
    }
    ++other_clocks_;
  }
  const Sample sample{one_clock ? 0 : header.producer, is_begun ? *making : -1, *waiting, *way};
  const std::uint64_t index = batches_++;
  if (index < kSamples) {
    samples_.push_back(sample);
    return;
  }
  // Each batch is among the samples with equal probability.
  const std::uint64_t place = Random(1, 0, index).bits() % (index + 1);
  if (place < kSamples) samples_[place] = sample;
}

HandOffSummary HandOffTimes::summary() const {
  const std::lock_guard lock(mutex_);
  std::vector<double> making, waiting, way;
  for (const Sample& sample : samples_) {
    if (sample.making >= 0) making.push_back(static_cast<double>(sample.making));
    waiting.push_back(static_cast<double>(sample.waiting));
    const std::int64_t least = sample.producer == 0 ? 0 : shortest_.at(sample.producer);
    way.push_back(static_cast<double>(sample.way - least));
  }
  const Distribution m = distribution_of(making), w = distribution_of(waiting),
                     y = distribution_of(way);
  return {.batches = batches_,
          .other_clocks = other_clocks_,
          .making_median = m.median,
          .making_p99 = m.p99,
          .waiting_median = w.median,
          .waiting_p99 = w.p99,
          .way_median = y.median,
          .way_p99 = y.p99};
}

std::int64_t realtime_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace penstock::remote
