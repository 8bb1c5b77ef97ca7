// SPDX-License-Identifier: Apache-2.0
// What a verb shows on standard error while it works: one changing line on a terminal, occasional
// plain lines elsewhere. One thread at a time uses each of these objects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>

#include "bench/run/observe/progress.h"
#include "dataflow/clock.h"

namespace penstock {

/// Permanent text appears above the changing line. The destructor removes an open line.
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

/// A series of runs, each in a child process. On a terminal, the changing line shows the current
/// run: its rate so far, the queue behind the feeder, and the time left for all runs. Elsewhere,
/// each run prints one line at its end. Another thread may call `running`.
class RunLine {
 public:
  /// `single`: `out` is a terminal, and nothing else writes to it.
  RunLine(std::FILE* out, bool single) : line_(out, single) {}

  /// A run begins. `what` names it; `left_is` ("at most ") and `left_s` (seconds) tell the time
  /// left for all runs.
  void begin(std::string what, std::string left_is, double left_s);
  /// Shows the progress of the run. Called a few times a second.
  void running(const Progress& progress);
  /// The run has ended. If `stays`, prints `text` as a permanent line.
  void end(const std::string& text, bool stays);

  bool single() const { return line_.single(); }
  /// Prints a permanent line.
  void print(const std::string& text) { line_.print(text); }
  /// Removes the changing line after the last run.
  void finish() { line_.clear(); }

 private:
  LiveLine line_;
  std::string what_, left_is_;
  double left_s_ = 0;
};

/// How much of a job of known size is done. It prints nothing in the first second. Then it rewrites
/// one line on a terminal, and prints a line every five seconds elsewhere.
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

/// Saves results after each run of a series, so that an end of the program loses none.
class ResultSaver {
 public:
  /// Calls `write`. If it throws DataError, throws ConfigError the first time, because a series
  /// that cannot be saved should not begin; later, prints a line with `print`, once until it works
  /// again.
  void save(const std::function<void()>& write,
            const std::function<void(const std::string&)>& print);
  /// Are all results so far on disk?
  bool saved() const noexcept { return saved_; }

 private:
  bool begun_ = false, saved_ = true;
};

}  // namespace penstock
