// SPDX-License-Identifier: Apache-2.0
// Logs every change in how many batches are ready in some rings, for a trace of a few steps. All
// memory is allocated before the first change. Changes that do not fit are counted and dropped.
//
// Thread-safety: add from any thread; open and close from one thread; depths and dropped only after
// the threads that add have ended.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dataflow/clock.h"

namespace penstock {

/// The number of filled slots of a ring after a change.
struct Depth {
  Time time{};
  std::int32_t ring = 0;  ///< the number given to RingMonitor::log_depths
  std::int32_t filled = 0;
};

class DepthLog {
 public:
  /// The log is closed at first.
  explicit DepthLog(std::size_t capacity) : depths_(capacity) {}

  /// From now on the log keeps changes, until it is closed.
  void open() noexcept { open_.store(true, std::memory_order_relaxed); }
  void close() noexcept { open_.store(false, std::memory_order_relaxed); }
  bool is_open() const noexcept { return open_.load(std::memory_order_relaxed); }

  void add(const Depth& depth) noexcept {
    const std::size_t place = added_.fetch_add(1, std::memory_order_relaxed);
    if (place < depths_.size()) depths_[place] = depth;
  }

  std::span<const Depth> depths() const noexcept {
    const std::size_t added = added_;
    return std::span(depths_).first(added < depths_.size() ? added : depths_.size());
  }
  std::size_t dropped() const noexcept { return added_ - depths().size(); }

 private:
  std::atomic<bool> open_{false};
  std::atomic<std::size_t> added_{0};
  std::vector<Depth> depths_;
};

}  // namespace penstock
