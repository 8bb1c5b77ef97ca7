// SPDX-License-Identifier: Apache-2.0
// The steps after which an evaluation or a checkpoint is due. Pure values.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "bench/config/run_config.h"

namespace penstock {

class DuePoints {
 public:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  DuePoints() = default;
  /// Due after every `period` steps, rounded up. The period may be a fraction.
  static DuePoints every(double period);
  /// Due after these step counts, in any order.
  static DuePoints at(std::vector<std::int64_t> steps);

  /// The first due step above `step` and above 0; kNever if there is none.
  std::int64_t next_after(std::int64_t step) const;
  bool is_due(std::int64_t step) const { return step > 0 && next_after(step - 1) == step; }
  bool empty() const noexcept { return period_ == 0 && steps_.empty(); }

 private:
  double period_ = 0;
  std::vector<std::int64_t> steps_;  // sorted
};

/// Parses numbers above 0: "10,20.5,30". Throws ConfigError naming `flag`.
std::vector<double> parse_numbers(std::string_view text, std::string_view flag);

/// The steps after which a run of `config` evaluates. Throws ConfigError if flags exclude each
/// other.
DuePoints evaluation_points(const RunConfig& config, double steps_per_epoch);

}  // namespace penstock
