// SPDX-License-Identifier: Apache-2.0
// Shows the progress of a slow compilation. It prints nothing in the first second, then rewrites
// one line on a terminal, or prints a line per quarter elsewhere.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>

#include "dataflow/clock.h"

namespace penstock {

class CompileProgress {
 public:
  /// `out` must outlive the object.
  CompileProgress(std::FILE* out, std::string model);
  CompileProgress(const CompileProgress&) = delete;
  CompileProgress& operator=(const CompileProgress&) = delete;
  /// Ends an open line.
  ~CompileProgress();
  /// Call repeatedly, with done <= total.
  void update(std::size_t done, std::size_t total);
  /// As update, at a given time; for tests.
  void update_at(Nanoseconds since_start, std::size_t done, std::size_t total);

 private:
  std::FILE* const out_;
  const std::string model_;
  const bool terminal_;
  const Time start_ = std::chrono::steady_clock::now();
  std::size_t quarters_ = 0;  // already reported
  bool line_open_ = false;
};

}  // namespace penstock
