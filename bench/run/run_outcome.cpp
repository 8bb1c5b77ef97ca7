// SPDX-License-Identifier: Apache-2.0
#include "bench/run/run_outcome.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/record/exit_code.h"

namespace penstock {
namespace {

Outcome outcome_of_failure(const std::exception_ptr& failure) {
  Outcome outcome{.status = Status::failed, .exit_code = exit_code_of(failure)};
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    outcome.reason = failure_text(error);
  }
  return outcome;
}

}  // namespace

Outcome outcome_of(const RunEnd& end) {
  if (end.failure) return outcome_of_failure(end.failure);
  if (end.stopped) {
    return {.status = Status::partial,
            .reason = fmt::format("stopped after {} steps of the window", end.window_steps),
            .exit_code = exit_code_of_stop()};
  }
  if (!end.data_ended) return {};
  if (!end.has_window) {
    return {.status = Status::failed,
            .reason = fmt::format("the data ended during warm-up, after {} of {} steps; give more "
                                  "data or a smaller --num-warmup-batches",
                                  end.warm_up_steps, end.planned_warm_up_steps),
            .exit_code = 6};
  }
  if (end.window_steps < end.requested_steps) {
    return {.status = Status::partial,
            .reason = fmt::format("the feeder's data ended after {} of {} steps", end.window_steps,
                                  end.requested_steps),
            .exit_code = 6};
  }
  return {
      .note = fmt::format(
          "the feeder's data ended after {} of {} steps, to which the window of {} was extended",
          end.window_steps, end.planned_steps, end.requested_steps)};
}

std::optional<ReserveUse> use_at_producer(const ReserveUse& counted, double window_s,
                                          double batches, double seconds) {
  constexpr double kLeastShare = 0.5;  // of the window
  if (seconds < kLeastShare * window_s) return std::nullopt;
  const double consumed = counted.consumed / window_s * seconds;  // meanwhile
  return ReserveUse{
      .consumed = consumed, .start = consumed, .end = batches, .error = counted.error};
}

Outcome outcome_of(const WindowReserve& reserve) {
  const ReserveUse &counted = reserve.counted, &use = reserve.use();
  const double share = most_hidden_share(use);
  const std::string remedy =
      fmt::format("measure at least {:.0f} steps{}",
                  std::max(kMinReserves * reserve.start / reserve.devices + 1, kMinReserves),
                  reserve.extends_window ? "" : ", or let --extend-window do it");
  const std::string outside =
      counted.outside > 0 ? fmt::format(", up to {:.0f} of them in sockets", counted.outside) : "";
  if (is_draining(use)) {
    if (use.consumed != counted.consumed) {
      return {
          .status = Status::draining,
          .reason = fmt::format("the producer sent {:.0f} batches while {:.0f} were trained on: it "
                                "does not keep up, which batches made before the window hid; {}",
                                use.end, use.consumed, remedy)};
    }
    return {.status = Status::draining,
            .reason = fmt::format("{:.0f} batches were ready when the window of {:.0f} began{}, "
                                  "and {:.0f} at its end, so its rate may not be sustainable; {}",
                                  reserve.start, counted.consumed, outside, reserve.end, remedy)};
  }
  if (share <= 1 / kMinReserves || is_long_enough(counted) || !reserve.costs_something) return {};
  return {.note = fmt::format(
              "up to {:.0f} % of the window's {:.0f} batches may have been made before it ({:.0f} "
              "were ready{}): the sustainable rate may be lower by that share; {}",
              100 * share, counted.consumed, reserve.start, outside, remedy)};
}

}  // namespace penstock
