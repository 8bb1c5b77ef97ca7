// SPDX-License-Identifier: Apache-2.0
// Says how far a slow compilation is: nothing in its first second, then one line that is rewritten
// on a terminal, and a line for each quarter elsewhere.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>

#include "dataflow/clock.h"

namespace penstock {

class CompileProgress {
 public:
  /// `out` is borrowed.
  CompileProgress(std::FILE* out, std::string model);
  CompileProgress(const CompileProgress&) = delete;
  CompileProgress& operator=(const CompileProgress&) = delete;
  /// Ends a line that was begun.
  ~CompileProgress();
  /// Called now and then, with done <= total.
  void update(std::size_t done, std::size_t total);
  /// The same at a stated moment, for tests.
  void update_at(Nanoseconds since_start, std::size_t done, std::size_t total);

 private:
  std::FILE* const out_;
  const std::string model_;
  const bool terminal_;
  const Time start_ = std::chrono::steady_clock::now();
  std::size_t quarters_ = 0;  // said so far
  bool line_open_ = false;
};

}  // namespace penstock
