// SPDX-License-Identifier: Apache-2.0
// Decides which leg of a run comes next and how many steps it has: warm-up, settling, the window
// and its extensions. Pure values, used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataflow/clock.h"

namespace penstock {

/// The steps that a run asks for.
struct PlannedSteps {
  std::int64_t warm_up = 0, window = 0;
  std::int64_t taken = 0;       ///< before the run was resumed
  bool evaluates_only = false;  ///< the run takes no steps
  bool extends = false;         ///< windows that are too short are repeated with more steps
  bool may_settle = false;      ///< warm-up steps may be added while a feeder tunes itself
};

class LegPlan {
 public:
  /// A run measures at most this many windows. Each one replaces the one before.
  static constexpr int kMaxWindows = 4;
  static constexpr std::int64_t kSettlingSteps = 10;

  enum class Phase : std::uint8_t {
    warm_up,
    settling,  ///< before the first window
    window,
    judging,  ///< the window has all its steps
    over
  };

  /// A resumed run takes the remaining steps and measures at least the last one.
  explicit LegPlan(const PlannedSteps& planned);

  Phase phase() const noexcept;
  /// All steps were taken before the run was resumed.
  bool has_nothing_left() const noexcept;

  /// The steps of the next warm-up leg, at most `most`.
  std::size_t take_warm_up(std::int64_t most);
  /// The steps to add while a feeder still tunes itself, for at most 30 s; 0: the window begins.
  std::size_t take_settling(bool settled, Time now);
  /// `reserve` batches are ready and `ranks` ranks consume them. The reserve counts only if the run
  /// extends windows. Discards the window before.
  void begin_window(double reserve, std::size_t ranks);
  /// The steps of the next leg of the window, at most `most`.
  std::size_t take_window(std::int64_t most);
  /// True if the window that has all its steps may be replaced by a longer one.
  bool may_extend() const noexcept { return planned_.extends && windows_ < kMaxWindows; }
  /// The result is complete.
  void end() noexcept { complete_ = true; }

  bool is_complete() const noexcept { return complete_; }
  int windows() const noexcept { return windows_; }  ///< begun
  std::int64_t warm_up_left() const noexcept { return warm_up_left_; }
  /// Warm-up steps, and steps of windows that were replaced.
  std::int64_t discarded_steps() const noexcept { return discarded_; }
  std::size_t requested() const noexcept { return requested_; }  ///< configured window steps
  std::size_t length() const noexcept { return length_; }        ///< steps of the current window

 private:
  const PlannedSteps planned_;
  std::int64_t warm_up_left_ = 0, window_left_ = 0, discarded_ = 0;
  std::size_t requested_ = 0, length_ = 0;
  int windows_ = 0;
  Time settling_since_{};  // end of the requested warm-up
  bool complete_ = false;
};

}  // namespace penstock
