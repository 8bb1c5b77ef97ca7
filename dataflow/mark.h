// SPDX-License-Identifier: Apache-2.0
// Names for parts of a thread's time: waiting for a slot, decoding, copying, a step. A mark goes to
// the profiler that watches the process, if the device's backend supports one, and to the run's
// trace, if the user asked for one. With neither, a mark costs one branch.
//
// Thread-safety: any thread may copy and use Marks. A Mark belongs to the thread that made it.
// Marks nest: a later one ends before an earlier one on the same thread.
#pragma once

#include <cstdint>

#include "dataflow/trace_log.h"

namespace penstock {

/// Tells a profiler of named ranges, which nest per thread. The names must live as long as the
/// program.
struct MarkFunctions {
  void (*push)(const char* name) noexcept = nullptr;
  void (*pop)() noexcept = nullptr;
};

/// Says where a component's marks go. By default they go nowhere.
class Marks {
 public:
  Marks() = default;
  /// Either pointer may be null; both objects must outlive the marks.
  Marks(const MarkFunctions* profiler, SpanLog* log, Work work, std::int32_t rank = 0) noexcept
      : profiler_(profiler), log_(log), work_(work), rank_(rank) {}
  bool go_somewhere() const noexcept { return profiler_ != nullptr || log_ != nullptr; }

 private:
  friend class Mark;
  const MarkFunctions* profiler_ = nullptr;
  SpanLog* log_ = nullptr;
  Work work_ = Work::feeding;
  std::int32_t rank_ = 0;
};

/// Marks the time from here to the end of the scope.
class Mark {
 public:
  /// `name` is a literal; `marks` must outlive the mark.
  Mark(const Marks& marks, const char* name) noexcept
      : marks_(marks.go_somewhere() ? &marks : nullptr), name_(name) {
    if (marks_ != nullptr) [[unlikely]]
      begin();
  }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  ~Mark() {
    if (marks_ != nullptr) [[unlikely]]
      end();
  }

 private:
  void begin() noexcept;
  void end() noexcept;

  const Marks* const marks_;
  const char* const name_;
  bool kept_ = false;
  Time begin_{};
};

}  // namespace penstock
