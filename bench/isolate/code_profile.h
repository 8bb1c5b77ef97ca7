// SPDX-License-Identifier: Apache-2.0
// Which code the time for a loader's samples goes to, from separate runs: a profile costs time,
// so no other figure comes from them. Pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/record/sweep_result.h"
#include "bench/statistics/estimate.h"
#include "bench/statistics/input_cost.h"

namespace penstock::isolate {

/// The rows of these runs: the present configuration without and with the profile, in the same
/// blocks.
struct ProfileRows {
  std::size_t plain = 0, profiled = 0;
};

struct CodeShare {
  std::string name;  ///< a transform, a function, or a line such as "data.py:31 image.resize(size)"
  double percent = 0;
};

struct CodeProfile {
  std::vector<CodeShare> shares;  ///< of the time for samples, largest first
  /// Of the same time: "computing", "waiting for a lock", ..., largest first. Empty: not known.
  std::vector<CodeShare> states;
  /// By how much the profile lowers the rate.
  statistics::Estimate cost_percent;
};

/// The configuration with the profile; none: the feeder has none.
std::optional<RunConfig> profiled_config(RunConfig config);

/// None: the loader sent no profile, because its times are not known.
std::optional<CodeProfile> find_code_profile(const SweepResult& sweep, const ProfileRows& rows,
                                             const statistics::CostTargets& targets);

/// Of the time for samples, in per cent; 0 if it is not known.
double state_percent(const CodeProfile& profile, std::string_view state);

/// "Of the time for samples, 44 % is spent in ColorJitter and 33 % in default_loader; that is 97 %
/// computing (from separate runs ...)."
std::string sentence_of(const CodeProfile& profile);

}  // namespace penstock::isolate
