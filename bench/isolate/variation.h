// SPDX-License-Identifier: Apache-2.0
// Settings of a feeder that `isolate --vary` tries: all combinations of the values that the user
// lists. Pure functions.
//
// The best of many noisy rows looks better than it is. So one setting is chosen from blocks of all
// settings, and then measured again beside the present one, in blocks that did not choose it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/analysis/cost.h"
#include "bench/isolate/predictions.h"
#include "bench/record/sweep_result.h"
#include "bench/statistics/estimate.h"

namespace penstock::isolate {

/// One combination of values.
struct Setting {
  std::string change;  ///< "num_workers=4, prefetch_factor=2"; empty: the present setting
  std::string values;  ///< of the present setting, if it is one of the combinations
  RunConfig config;
  std::string unavailable;               ///< why it cannot be measured; empty: it can
  std::optional<std::size_t> row;        ///< in the sweep, once it is planned
  std::vector<SettingChange> changes{};  ///< `change` as data
};

/// Parses "num_workers=0,2,4,prefetch_factor=2,4": names with their values, the first name slowest.
/// The present setting comes first, and only once.
///
/// A name is an option of the feeder. If the feeder takes arguments for a loader, other names are
/// arguments, and names in capitals, such as OMP_NUM_THREADS, are environment variables of the
/// loader. If not, other names are keys of RunConfig. Throws ConfigError for names that are none of
/// these, for wrong values of options, and for more than 32 combinations.
std::vector<Setting> settings_of(std::string_view text, const RunConfig& present);

/// What `name` is for the feeder of `present`, and its value there. Throws ConfigError for a name
/// that is none of these.
SettingChange change_of(const RunConfig& present, std::string_view name, std::string value);

struct SettingFinding {
  std::string change, values;  ///< as in Setting
  std::optional<statistics::Estimate> img_per_s;
  std::string unavailable;
};

struct VariationFinding {
  std::vector<SettingFinding> settings;  ///< in the order of the user's values
  /// The first setting whose rate is within the margin of the highest; none: nothing was measured.
  std::optional<std::size_t> best;
  std::size_t blocks = 0;
};

/// Whether the loader reports the settings that `setting` changes as it does in the present run.
bool is_present(const Setting& setting, const RunResult& run, const RunResult& present);

/// Rates follow from pairs of runs in the same blocks and from the present rate, which `present`
/// has. Another setting is best only if it is surely faster than the present one.
VariationFinding find_variation(const SweepResult& sweep, std::span<const Setting> settings,
                                const analysis::InputCostFinding& present);

/// The best setting as a recommendation; none: the present setting is as good.
std::optional<Recommendation> recommendation_of(const VariationFinding& found,
                                                std::span<const Setting> settings,
                                                const analysis::InputCostFinding& present);

/// "Of 6 settings, num_workers=4 is best: 2,310 img/s (2,280 to 2,340). num_workers=8 is as fast."
std::string sentence_of(const VariationFinding& found, double margin);

}  // namespace penstock::isolate
