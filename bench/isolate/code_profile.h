// SPDX-License-Identifier: Apache-2.0
// Which code the time for a loader's samples goes to, from separate runs: a profile costs time,
// so no other figure comes from them. Pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
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
  /// By how much the profile lowers the rate.
  statistics::Estimate cost_percent;
};

/// The configuration with the profile; none: the feeder has none.
std::optional<RunConfig> profiled_config(RunConfig config);

/// None: the loader sent no profile, because its times are not known.
std::optional<CodeProfile> find_code_profile(const SweepResult& sweep, const ProfileRows& rows,
                                             const statistics::CostTargets& targets);

/// "Of the time for samples, 44 % is spent in ColorJitter, 33 % in default_loader and ..."
std::string sentence_of(const CodeProfile& profile);

}  // namespace penstock::isolate
