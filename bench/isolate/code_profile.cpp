// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/code_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

#include "bench/analysis/cost.h"
#include "dataflow/options.h"
#include "dataflow/probe.h"
#include "feeders/feeder.h"

namespace penstock::isolate {

std::optional<RunConfig> profiled_config(RunConfig config) {
  ComponentText feeder = parse_component(config.fake_location);
  const std::string_view option = find_entry(feeder_table(), feeder.name).profile_option;
  if (option.empty()) return std::nullopt;
  feeder.values.emplace_back(option, "true");
  config.fake_location = component_text(feeder);
  return config;
}

std::optional<CodeProfile> find_code_profile(const SweepResult& sweep, const ProfileRows& rows,
                                             const statistics::CostTargets& targets) {
  const Row &plain = sweep.rows[rows.plain], &profiled = sweep.rows[rows.profiled];
  std::map<std::string, double> times;
  double all = 0;
  for (const RunResult* run : analysis::usable_runs(profiled)) {
    for (const auto& [name, ns] : run->counters) {
      if (!name.starts_with(kLoadTime)) continue;
      times[name.substr(kLoadTime.size())] += static_cast<double>(ns);
      all += static_cast<double>(ns);
    }
  }
  const auto cost =
      analysis::find_cost(analysis::pair_blocks(plain, profiled), images_per_step(plain), targets);
  if (!(all > 0) || !cost) return std::nullopt;
  CodeProfile profile{.shares = {}, .cost_percent = cost->percent};
  for (const auto& [name, ns] : times) profile.shares.push_back({name, 100 * ns / all});
  std::ranges::stable_sort(profile.shares, std::ranges::greater(), &CodeShare::percent);
  return profile;
}

std::string sentence_of(const CodeProfile& profile) {
  constexpr std::size_t kMost = 3;
  constexpr double kLeastPercent = 5;
  std::vector<std::string> parts;
  for (const CodeShare& share : profile.shares) {
    if (parts.size() == kMost || (!parts.empty() && share.percent < kLeastPercent)) break;
    parts.push_back(fmt::format("{:.0f} % {}in {}", share.percent, parts.empty() ? "is spent " : "",
                                share.name));
  }
  const double cost = profile.cost_percent.value;
  return fmt::format(
      "Of the time for samples, {} (from separate runs with a profile, which costs {}).",
      join(parts), cost < 1 ? "less than 1 %" : fmt::format("{:.0f} %", cost));
}

}  // namespace penstock::isolate
