// SPDX-License-Identifier: Apache-2.0
// Standard error while something goes on: on a terminal one line that changes, elsewhere plain
// lines now and then. What is printed for good goes above it. Destroyed, it leaves no half line.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>

namespace penstock {

class LiveLine {
 public:
  /// `single`: `out` is a terminal that nothing else writes to.
  LiveLine(std::FILE* out, bool single) : out_(out), single_(single) {}
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;
  ~LiveLine() { clear(); }

  bool single() const noexcept { return single_; }
  /// Columns that a passing line may have.
  std::size_t width() const;
  bool colour() const;
  /// Replaces the line; nothing where there is none.
  void pass(const std::string& text);
  /// A line that stays.
  void print(const std::string& text);
  /// Takes the passing line away.
  void clear();

 private:
  std::FILE* const out_;
  const bool single_;
  bool open_ = false;
};

}  // namespace penstock
