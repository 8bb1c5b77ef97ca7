// SPDX-License-Identifier: Apache-2.0
// Logs spans of threads' time, as marks (mark.h) define them, for a trace of a few steps. All
// memory is allocated before the first span. Spans that do not fit are counted and dropped.
//
// Thread-safety: add from any thread; open and close from one thread; spans and dropped only after
// the threads that add have ended.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dataflow/clock.h"

namespace penstock {

/// The part of the program that spends the time.
enum class Work : std::uint8_t { feeding, staging };

struct Span {
  const char* name = "";  ///< a literal
  Work work = Work::feeding;
  std::int32_t rank = 0;    ///< the rank that is staged for
  std::int32_t thread = 0;  ///< the kernel's thread id
  Time begin{}, end{};
};

class SpanLog {
 public:
  /// The log is closed at first. `clock` must outlive the log.
  SpanLog(std::size_t capacity, const Clock& clock) : clock_(clock), spans_(capacity) {}

  /// The log keeps spans that begin from now on, until it is closed.
  void open() noexcept { open_.store(true, std::memory_order_relaxed); }
  void close() noexcept { open_.store(false, std::memory_order_relaxed); }
  bool is_open() const noexcept { return open_.load(std::memory_order_relaxed); }
  Time now() const { return clock_.now(); }

  void add(const Span& span) noexcept {
    const std::size_t place = added_.fetch_add(1, std::memory_order_relaxed);
    if (place < spans_.size()) spans_[place] = span;
  }

  /// The spans, in the order in which they ended.
  std::span<const Span> spans() const noexcept {
    return std::span(spans_).first(spans_.size() - free_places());
  }
  std::size_t dropped() const noexcept { return added_ - spans().size(); }

 private:
  std::size_t free_places() const noexcept {
    const std::size_t added = added_;
    return added < spans_.size() ? spans_.size() - added : 0;
  }

  const Clock& clock_;
  std::atomic<bool> open_{false};
  std::atomic<std::size_t> added_{0};
  std::vector<Span> spans_;
};

}  // namespace penstock
