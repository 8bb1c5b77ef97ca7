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

/// States of the time for samples.
inline constexpr std::string_view kComputing = "computing",
                                  kWaitingForProcessor = "waiting for a processor";

struct SlowSample {
  std::string index;  ///< in the data set
  double ms = 0;      ///< the longest time that it took
};

struct CodeProfile {
  std::vector<CodeShare> shares;  ///< of the time for samples, largest first
  /// Of the same time: kComputing, kWaitingForProcessor, "waiting for a lock", ..., largest first.
  /// Empty: not known.
  std::vector<CodeShare> states;
  std::vector<SlowSample> slowest{};                ///< longest first. Empty: not known.
  double median_sample_ms = 0, mean_sample_ms = 0;  ///< without waits for a processor
  /// By how much the profile lowers the rate; fewer than two samples: not known.
  statistics::Estimate cost_percent;
};

/// The configuration with the profile; none: the feeder has none.
std::optional<RunConfig> profiled_config(RunConfig config);

/// None: the loader sent no profile, because its times are not known.
std::optional<CodeProfile> find_code_profile(const SweepResult& sweep, const ProfileRows& rows,
                                             const statistics::CostTargets& targets);

/// Of the time for samples, in per cent; 0 if it is not known.
double state_percent(const CodeProfile& profile, std::string_view state);

/// Do a few slow samples make the mean much larger than the median?
bool has_slow_samples(const CodeProfile& profile);
/// "A few samples are slow: the median one takes 2.1 ms, the mean is 5.0 ms. The slowest have the
/// indices 150 (412 ms), 50 (398 ms)." Empty if there are none.
std::string slow_samples_sentence(const CodeProfile& profile);

/// "Of the time for samples, 44 % is spent in ColorJitter and 33 % in default_loader; that is 97 %
/// computing (from separate runs ...)."
std::string sentence_of(const CodeProfile& profile);

}  // namespace penstock::isolate
