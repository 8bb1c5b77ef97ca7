// SPDX-License-Identifier: Apache-2.0
// What threads log for a trace of a few steps: spans of their time, as marks define them, and every
// change in how many batches are ready in some rings.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dataflow/clock.h"

namespace penstock {

/// A log whose memory is allocated before the first entry. Entries that do not fit are counted and
/// dropped.
///
/// Thread-safety: add from any thread; open and close from one thread; entries and dropped only
/// after the threads that add have ended.
template <typename Entry>
class TraceLog {
 public:
  /// The log is closed at first.
  explicit TraceLog(std::size_t capacity) : entries_(capacity) {}

  /// Threads that add ask is_open() first: the log is for what begins from now on, until it is
  /// closed.
  void open() noexcept { open_.store(true, std::memory_order_relaxed); }
  void close() noexcept { open_.store(false, std::memory_order_relaxed); }
  bool is_open() const noexcept { return open_.load(std::memory_order_relaxed); }

  void add(const Entry& entry) noexcept {
    const std::size_t place = added_.fetch_add(1, std::memory_order_relaxed);
    if (place < entries_.size()) entries_[place] = entry;
  }

  /// In the order in which they were added.
  std::span<const Entry> entries() const noexcept {
    const std::size_t added = added_;
    return std::span(entries_).first(added < entries_.size() ? added : entries_.size());
  }
  std::size_t dropped() const noexcept { return added_ - entries().size(); }

 private:
  std::atomic<bool> open_{false};
  std::atomic<std::size_t> added_{0};
  std::vector<Entry> entries_;
};

/// The part of the program that spends the time.
enum class Work : std::uint8_t { feeding, staging };

struct Span {
  const char* name = "";  ///< a literal
  Work work = Work::feeding;
  std::int32_t rank = 0;    ///< the rank that is staged for
  std::int32_t thread = 0;  ///< the kernel's thread id
  Time begin{}, end{};
};

class SpanLog : public TraceLog<Span> {
 public:
  /// `clock` must outlive the log.
  SpanLog(std::size_t capacity, const Clock& clock) : TraceLog(capacity), clock_(clock) {}
  Time now() const { return clock_.now(); }

 private:
  const Clock& clock_;
};

/// The number of filled slots of a ring after a change.
struct Depth {
  Time time{};
  std::int32_t ring = 0;  ///< the number given to RingMonitor::log_depths
  std::int32_t filled = 0;
};

using DepthLog = TraceLog<Depth>;

}  // namespace penstock
