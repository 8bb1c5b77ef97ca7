// SPDX-License-Identifier: Apache-2.0
// Names for parts of a thread's time: waiting for a slot, decoding, copying, a step. A mark goes to
// the profiler that watches the process, where the device's backend knows of one, and to the run's
// own trace, where one was asked for; with neither it costs one branch.
//
// Thread-safety: Marks may be copied and used from any thread; a Mark belongs to the thread that
// made it, and ends there before those made earlier do.
#pragma once

#include "dataflow/span_log.h"

namespace penstock {

/// How a profiler is told of named ranges, which nest by thread. Names live as long as the program.
struct MarkFunctions {
  void (*push)(const char* name) noexcept = nullptr;
  void (*pop)() noexcept = nullptr;
};

/// Where a component's marks go; nowhere by default.
class Marks {
 public:
  Marks() = default;
  /// Either may be null; both outlive the marks.
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

/// From here to the end of the scope.
class Mark {
 public:
  /// `name` is a literal; `marks` outlives the mark.
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
