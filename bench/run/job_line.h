// SPDX-License-Identifier: Apache-2.0
// Shows on standard error how much of a job of known size is done. It prints nothing in the first
// second. Then it rewrites one line on a terminal, and prints a line every five seconds elsewhere.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string_view>

#include "bench/run/live_line.h"
#include "dataflow/clock.h"

namespace penstock {

class JobLine {
 public:
  /// `out` must outlive the object.
  explicit JobLine(std::FILE* out);
  /// "reading: 25 of 100 samples". Call it often, with done <= total.
  void update(std::string_view what, std::uint64_t done, std::uint64_t total,
              std::string_view unit);
  /// As update, at a given time; for tests.
  void update_at(Nanoseconds since_start, std::string_view what, std::uint64_t done,
                 std::uint64_t total, std::string_view unit);
  /// Removes the changing line.
  void clear() { line_.clear(); }

 private:
  LiveLine line_;
  const Time start_ = std::chrono::steady_clock::now();
  Nanoseconds next_ = std::chrono::seconds(1);
};

}  // namespace penstock
