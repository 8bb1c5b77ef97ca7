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
namespace {

/// The counters whose names begin with `prefix`, as shares of their sum, largest first.
std::vector<CodeShare> shares_of(const Row& row, std::string_view prefix) {
  std::map<std::string, double> times;
  double all = 0;
  for (const RunResult* run : analysis::usable_runs(row)) {
    for (const auto& [name, ns] : run->counters) {
      if (!name.starts_with(prefix)) continue;
      times[name.substr(prefix.size())] += static_cast<double>(ns);
      all += static_cast<double>(ns);
    }
  }
  std::vector<CodeShare> shares;
  if (!(all > 0)) return shares;
  for (const auto& [name, ns] : times) shares.push_back({name, 100 * ns / all});
  std::ranges::stable_sort(shares, std::ranges::greater(), &CodeShare::percent);
  return shares;
}

/// "44 % {first}in ColorJitter, 33 % in default_loader and 11 % in ..."
std::string largest_of(const std::vector<CodeShare>& shares, std::string_view first,
                       std::string_view each) {
  constexpr std::size_t kMost = 3;
  constexpr double kLeastPercent = 5;
  std::vector<std::string> parts;
  for (const CodeShare& share : shares) {
    if (parts.size() == kMost || (!parts.empty() && share.percent < kLeastPercent)) break;
    parts.push_back(fmt::format("{:.0f} % {}{}{}", share.percent, parts.empty() ? first : "", each,
                                share.name));
  }
  return join(parts);
}

}  // namespace

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
  CodeProfile profile{.shares = shares_of(profiled, kLoadTime),
                      .states = shares_of(profiled, kLoadState),
                      .cost_percent = {}};
  const auto cost =
      analysis::find_cost(analysis::pair_blocks(plain, profiled), images_per_step(plain), targets);
  if (profile.shares.empty() || !cost) return std::nullopt;
  profile.cost_percent = cost->percent;
  return profile;
}

double state_percent(const CodeProfile& profile, std::string_view state) {
  const auto found = std::ranges::find(profile.states, state, &CodeShare::name);
  return found == profile.states.end() ? 0 : found->percent;
}

std::string sentence_of(const CodeProfile& profile) {
  const double cost = profile.cost_percent.value;
  std::string text = "Of the time for samples, " + largest_of(profile.shares, "is spent ", "in ");
  if (!profile.states.empty()) {
    text += "; that is " + largest_of(profile.states, "", "");
  }
  return fmt::format("{} (from separate runs with a profile, which costs {}).", text,
                     cost < 1 ? "less than 1 %" : fmt::format("{:.0f} %", cost));
}

}  // namespace penstock::isolate
