// SPDX-License-Identifier: Apache-2.0
// Steps after which something is due: an evaluation, a checkpoint. Pure values.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "bench/run_config.h"

namespace penstock {

class DuePoints {
 public:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  DuePoints() = default;
  /// Behind every `period` steps, rounded up; a period need not be a whole number.
  static DuePoints every(double period);
  /// Behind these numbers of steps, in any order.
  static DuePoints at(std::vector<std::int64_t> steps);

  /// The first point above `step` and above 0; kNever: none.
  std::int64_t next_after(std::int64_t step) const;
  bool is_due(std::int64_t step) const { return step > 0 && next_after(step - 1) == step; }
  bool empty() const noexcept { return period_ == 0 && steps_.empty(); }

 private:
  double period_ = 0;
  std::vector<std::int64_t> steps_;  // sorted
};

/// "10,20.5,30": numbers above 0. Throws ConfigError naming `flag`.
std::vector<double> parse_numbers(std::string_view text, std::string_view flag);

/// When a run of `config` evaluates. Throws ConfigError for flags that exclude each other.
DuePoints evaluation_points(const RunConfig& config, double steps_per_epoch);

}  // namespace penstock
