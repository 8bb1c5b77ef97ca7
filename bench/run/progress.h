// SPDX-License-Identifier: Apache-2.0
// How far a run is, for whoever watches it: in the same process, or through a pipe as lines of
// JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "bench/runner.h"
#include "bench/statistics/estimate.h"

namespace penstock {

struct Progress {
  std::string phase = "starting";  ///< "starting", "warm-up", "window", "evaluation"
  /// Of the phase; steps 0: not known.
  std::int64_t steps_done = 0, steps = 0;
  Estimate img_per_s;  ///< of the window so far; samples 0: not known
  std::int32_t queue_filled = 0,
               queue_slots = 0;  ///< of the ring next to the feeder; 0 slots: none
  double elapsed_s = 0;          ///< since the run began
  double left_s = 0;             ///< of the phase, at its rate; 0: not known
};

/// One line of JSON, without its end.
std::string to_line(const Progress& progress);
/// Nothing where the line is not what to_line writes.
std::optional<Progress> progress_from_line(std::string_view line);

/// "window 40/100 steps  512.3 img/s +-0.8 %  queue [##-] 2/3  2 s left", of at most `width`
/// columns: what does not fit is left out from the end. With `colour` the queue is red where it is
/// empty and green where it is full.
std::string progress_text(const Progress& progress, std::size_t width, bool colour);

/// "42 s", "3 min 07 s".
std::string duration_text(double seconds);

}  // namespace penstock
