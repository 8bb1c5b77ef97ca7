// SPDX-License-Identifier: Apache-2.0
// Spans of threads' time, as marks (mark.h) leave them: for a trace of a few steps. All memory is
// there before the first span; what does not fit is counted and dropped.
//
// Thread-safety: add from any thread; open and close from one; spans and dropped once the threads
// that add have ended.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dataflow/clock.h"

namespace penstock {

/// Whose time a span is.
enum class Work : std::uint8_t { feeding, staging };

struct Span {
  const char* name = "";  ///< a literal
  Work work = Work::feeding;
  std::int32_t rank = 0;    ///< that is staged for
  std::int32_t thread = 0;  ///< the kernel's number of the thread
  Time begin{}, end{};
};

class SpanLog {
 public:
  /// Closed at first. `clock` outlives the log.
  SpanLog(std::size_t capacity, const Clock& clock) : clock_(clock), spans_(capacity) {}

  /// Spans that begin from here on are kept, until the log closes.
  void open() noexcept { open_.store(true, std::memory_order_relaxed); }
  void close() noexcept { open_.store(false, std::memory_order_relaxed); }
  bool is_open() const noexcept { return open_.load(std::memory_order_relaxed); }
  Time now() const { return clock_.now(); }

  void add(const Span& span) noexcept {
    const std::size_t place = added_.fetch_add(1, std::memory_order_relaxed);
    if (place < spans_.size()) spans_[place] = span;
  }

  /// In the order in which they ended.
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
