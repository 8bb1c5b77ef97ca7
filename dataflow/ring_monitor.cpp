// SPDX-License-Identifier: Apache-2.0
#include "dataflow/ring_monitor.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace penstock {

// ---- history ----------------------------------------------------------------

void LevelHistory::add(std::int64_t level, Nanoseconds duration) {
  while (duration.count() > 0) {
    auto bin = static_cast<std::size_t>(length_ / width_);
    if (bin == kBins) {
      join_pairs();
      bin = kBins / 2;
    }
    const Nanoseconds part = std::min(duration, width_ - length_ % width_);
    integrals_[bin] += level * part.count();
    length_ += part;
    duration -= part;
  }
}

void LevelHistory::join_pairs() {
  for (std::size_t bin = 0; bin < kBins / 2; ++bin) {
    integrals_[bin] = integrals_[2 * bin] + integrals_[2 * bin + 1];
  }
  std::fill(integrals_.begin() + kBins / 2, integrals_.end(), std::int64_t{0});
  width_ *= 2;
}

double LevelHistory::integral_until(double ns) const {
  const auto width = static_cast<double>(width_.count());
  const auto whole = std::min(static_cast<std::size_t>(ns / width), kBins);
  const auto end = integrals_.begin() + static_cast<std::ptrdiff_t>(whole);
  auto sum = static_cast<double>(std::accumulate(integrals_.begin(), end, std::int64_t{0}));
  const double begin = static_cast<double>(whole) * width;
  // The last bin may not be full yet.
  const double filled = std::min(width, static_cast<double>(length_.count()) - begin);
  if (whole < kBins && filled > 0) {
    sum += static_cast<double>(integrals_[whole]) * std::min(1.0, (ns - begin) / filled);
  }
  return sum;
}

std::vector<double> LevelHistory::means(std::size_t parts) const {
  std::vector<double> result;
  if (length_.count() == 0) return result;
  const double part = static_cast<double>(length_.count()) / static_cast<double>(parts);
  double before = 0;
  for (std::size_t i = 1; i <= parts; ++i) {
    const double until = integral_until(static_cast<double>(i) * part);
    result.push_back((until - before) / part);
    before = until;
  }
  return result;
}

// ---- monitor ----------------------------------------------------------------

void RingMonitor::account() noexcept {
  if (!watching_) return;
  const Time now = clock_.now();
  const Nanoseconds passed = now - std::exchange(accounted_, now);
  const auto filled = static_cast<std::int64_t>(levels_.filled);
  sums_.watched += passed;
  sums_.filled_time += filled * passed;
  if (filled == 0) sums_.empty_time += passed;
  if (levels_.free == 0) sums_.full_time += passed;
  sums_.producer_wait += levels_.waiting_producers * passed;
  sums_.consumer_wait += levels_.waiting_readers * passed;
  history_.add(filled, passed);
}

void RingMonitor::note_depth() noexcept {
  if (depths_ == nullptr || !depths_->is_open()) return;
  depths_->add({clock_.now(), number_, static_cast<std::int32_t>(levels_.filled)});
}

RingStats RingMonitor::stats() const {
  const std::lock_guard lock(mutex_);
  RingStats stats = sums_;
  stats.published = levels_.published;
  stats.filled_slots = levels_.filled;
  return stats;
}

void RingMonitor::watch(bool afresh) {
  const std::lock_guard lock(mutex_);
  account();
  if (afresh) {
    sums_ = {};
    history_.clear();
  }
  accounted_ = clock_.now();
  watching_ = true;
}

void RingMonitor::stop_watching() {
  const std::lock_guard lock(mutex_);
  account();
  watching_ = false;
}

std::vector<double> RingMonitor::filled_over_time(std::size_t parts) const {
  const std::lock_guard lock(mutex_);
  return history_.means(parts);
}

void RingMonitor::log_depths(DepthLog& log, std::int32_t ring) {
  const std::lock_guard lock(mutex_);
  depths_ = &log;
  number_ = ring;
}

void RingMonitor::log_depth() {
  const std::lock_guard lock(mutex_);
  note_depth();
}

}  // namespace penstock
