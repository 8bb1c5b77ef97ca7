// SPDX-License-Identifier: Apache-2.0
// The progress of a run, for an observer in the same process or, as lines of JSON, behind a pipe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "bench/statistics/estimate.h"

namespace penstock {

struct Progress {
  std::string phase = "starting";  ///< "starting", "warm-up", "window", "evaluation"
  /// In the phase; steps 0: unknown.
  std::int64_t steps_done = 0, steps = 0;
  statistics::Estimate img_per_s;  ///< in the window so far; samples 0: unknown
  std::string unit = "img/s";      ///< of that rate
  std::int32_t queue_filled = 0,
               queue_slots = 0;  ///< of the ring next to the feeder; 0 slots: none
  double elapsed_s = 0;          ///< since the run began
  double left_s = 0;             ///< in the phase, at its rate; 0: unknown
};

/// One line of JSON, without the line end.
std::string to_line(const Progress& progress);
/// Parses a line of to_line; none for other lines.
std::optional<Progress> progress_from_line(std::string_view line);

/// "window 40/100 steps  512.3 img/s +-0.8 %  queue [##-] 2/3  2 s left", in at most `width`
/// columns. Drops parts from the end if the text is too long. With `colour`, an empty queue is red
/// and a full one is green.
std::string progress_text(const Progress& progress, std::size_t width, bool colour);

/// "42 s", "3 min 07 s".
std::string duration_text(double seconds);

}  // namespace penstock
