// SPDX-License-Identifier: Apache-2.0
// How a run ended: status, reason and exit code, from a few facts. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "bench/record/statistics.h"
#include "bench/run/runner.h"

namespace penstock {

struct Outcome {
  Status status = Status::ok;
  std::string reason{};  ///< a sentence, if the status is not ok
  int exit_code = 0;     ///< see bench/record/exit_code.h
  std::string note{};    ///< a remark on the result; may be empty
};

/// Why a run took no more steps, and how many it took.
struct RunEnd {
  std::exception_ptr failure{};  ///< null: none
  bool stopped = false;          ///< from outside, before the window was complete
  bool data_ended = false;       ///< before the window was complete
  bool has_window = false;       ///< a window began
  std::int64_t warm_up_steps = 0, planned_warm_up_steps = 0;
  std::size_t window_steps = 0;     ///< that all ranks have finished
  std::size_t requested_steps = 0;  ///< of the window, as configured
  std::size_t planned_steps = 0;    ///< of the window; more than requested if it was extended
};
Outcome outcome_of(const RunEnd& end);

/// The batches that lay ready around a complete window.
struct WindowReserve {
  ReserveUse counted;
  /// By the producer's sending times, which include batches in sockets. None: unknown.
  std::optional<ReserveUse> at_producer{};
  double start = 0, end = 0;    ///< ready at either end of the window, with those in sockets
  std::int32_t devices = 1;     ///< of this process
  bool extends_window = false;  ///< the run extends windows that are too short
  bool costs_something = true;  ///< false: a ceiling, whose batches cost nothing to make
  const ReserveUse& use() const { return at_producer ? *at_producer : counted; }
};
/// The use of the reserve by `batches` that the producer sent in `seconds` of a window of
/// `window_s`. None if these are too small a part of the window.
std::optional<ReserveUse> use_at_producer(const ReserveUse& counted, double window_s,
                                          double batches, double seconds);
/// Checks whether batches made before the window decided its rate. If they may be a part of it,
/// the note tells their share, except for ceilings.
Outcome outcome_of(const WindowReserve& reserve);

}  // namespace penstock
