// SPDX-License-Identifier: Apache-2.0
// Shows activity on standard error: one changing line on a terminal, occasional plain lines
// elsewhere. Permanent text appears above the line. The destructor removes an open line.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>

namespace penstock {

class LiveLine {
 public:
  /// `single`: `out` is a terminal, and nothing else writes to it.
  LiveLine(std::FILE* out, bool single) : out_(out), single_(single) {}
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;
  ~LiveLine() { clear(); }

  bool single() const noexcept { return single_; }
  /// Columns available for the changing line.
  std::size_t width() const;
  bool colour() const;
  /// Replaces the changing line. Does nothing unless `single`.
  void pass(const std::string& text);
  /// Prints a permanent line.
  void print(const std::string& text);
  /// Removes the changing line.
  void clear();

 private:
  std::FILE* const out_;
  const bool single_;
  bool open_ = false;
};

}  // namespace penstock
