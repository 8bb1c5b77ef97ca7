// SPDX-License-Identifier: Apache-2.0
// Every change of how many batches lie ready in some rings: for a trace of a few steps. All memory
// is there before the first change; what does not fit is counted and dropped.
//
// Thread-safety: add from any thread; open and close from one; depths and dropped once the threads
// that add have ended.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dataflow/clock.h"

namespace penstock {

/// A ring behind a change.
struct Depth {
  Time time{};
  std::int32_t ring = 0;  ///< as whoever watches it numbers it
  std::int32_t filled = 0;
};

class DepthLog {
 public:
  /// Closed at first.
  explicit DepthLog(std::size_t capacity) : depths_(capacity) {}

  /// Changes from here on are kept, until the log closes.
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
