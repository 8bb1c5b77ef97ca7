// SPDX-License-Identifier: Apache-2.0
// Made-up sweeps, for tests of calculations and reports.
#pragma once

#include <string>
#include <utility>

#include "bench/record/sweep_result.h"

namespace penstock {

inline RunResult make_result(Status status, double img_per_s, double sustained_img_per_s) {
  RunResult result;
  result.status = status;
  if (status != Status::ok) result.reason = "because";
  result.img_per_s = img_per_s;
  result.sustained_img_per_s = sustained_img_per_s;
  result.images_per_step = 100;
  result.reserve_start =
      sustained_img_per_s < img_per_s ? 10 : 0;  // what the difference was fed by
  result.step_ms = {1.5, 2.5};
  result.input_wait_ms = {0.5, 0.25};
  result.device_idle_ms = {0, 0.75};
  result.device_idle_percent = 30;
  result.started = "2026-01-02T03:04:05Z";
  return result;
}

inline Row make_row(std::string feeder, bool is_ceiling = false) {
  Row row;
  row.config.fake_location = std::move(feeder);
  row.is_ceiling = is_ceiling;
  return row;
}

inline void add_repetition(Row& row, std::int32_t round, RunResult result) {
  result.config = row.config;
  result.config.seed = row.config.seed + static_cast<std::uint64_t>(round);
  row.repetitions.push_back({round, std::move(result)});
}

/// Three ok repetitions at `img_per_s`, and one per cent below and above.
inline Row make_ok_row(std::string feeder, double img_per_s, bool is_ceiling = false) {
  Row row = make_row(std::move(feeder), is_ceiling);
  for (std::int32_t round = 0; round < 3; ++round) {
    const double rate = img_per_s * (1 + 0.01 * (round - 1));
    add_repetition(row, round, make_result(Status::ok, rate, rate));
  }
  return row;
}

}  // namespace penstock
