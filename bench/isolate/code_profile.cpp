// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/code_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "bench/analysis/cost.h"
#include "bench/isolate/loader_waits.h"
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

std::vector<SlowSample> slowest_samples(const Row& row) {
  constexpr std::string_view kPrefix = "slow_sample_ms: ";
  constexpr std::size_t kMost = 5;
  std::map<std::string, double> longest;
  for (const RunResult* run : analysis::usable_runs(row)) {
    for (const auto& [name, ms] : run->facts) {
      if (!name.starts_with(kPrefix)) continue;
      double& known = longest[name.substr(kPrefix.size())];
      known = std::max(known, ms);
    }
  }
  std::vector<SlowSample> samples;
  for (const auto& [index, ms] : longest) samples.push_back({index, ms});
  std::ranges::stable_sort(samples, std::ranges::greater(), &SlowSample::ms);
  samples.resize(std::min(samples.size(), kMost));
  return samples;
}

/// The profile sees that a thread may compute; the kernel says for how long of that it had no
/// processor.
void tell_waits_for_processor(double percent, std::vector<CodeShare>& states) {
  constexpr double kLeastPercent = 3;
  const auto computing = std::ranges::find(states, kComputing, &CodeShare::name);
  if (computing == states.end() || percent < kLeastPercent) return;
  const double waiting = std::min(percent, computing->percent);
  computing->percent -= waiting;
  states.push_back({std::string(kWaitingForProcessor), waiting});
  std::ranges::stable_sort(states, std::ranges::greater(), &CodeShare::percent);
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
                      .slowest = slowest_samples(profiled),
                      .median_sample_ms = mean_fact(profiled, "median_sample_ms").value_or(0),
                      .mean_sample_ms = mean_fact(profiled, "mean_sample_ms").value_or(0),
                      .cost_percent = {}};
  if (profile.shares.empty()) return std::nullopt;
  tell_waits_for_processor(mean_fact(profiled, "samples_core_wait_percent").value_or(0),
                           profile.states);
  if (const auto cost = analysis::find_cost(analysis::pair_blocks(plain, profiled),
                                            images_per_step(plain), targets);
      cost && rows.plain != rows.profiled) {
    profile.cost_percent = cost->percent;
  }
  return profile;
}

double state_percent(const CodeProfile& profile, std::string_view state) {
  const auto found = std::ranges::find(profile.states, state, &CodeShare::name);
  return found == profile.states.end() ? 0 : found->percent;
}

bool has_slow_samples(const CodeProfile& profile) {
  constexpr double kSkewed = 1.5;  // a distribution as that of decoding photographs has 1.2
  return !profile.slowest.empty() && profile.median_sample_ms > 0 &&
         profile.mean_sample_ms > kSkewed * profile.median_sample_ms;
}

std::string slow_samples_sentence(const CodeProfile& profile) {
  constexpr double kMuchSlower = 5, kNearSlowest = 0.1;
  std::vector<std::string> names;
  if (!has_slow_samples(profile)) return {};
  for (const SlowSample& sample : profile.slowest) {
    if (!(sample.ms > std::max(kMuchSlower * profile.median_sample_ms,
                               kNearSlowest * profile.slowest.front().ms))) {
      break;
    }
    names.push_back(fmt::format("{} ({:.0f} ms)", sample.index, sample.ms));
  }
  if (names.empty()) return {};
  return fmt::format(
      "A few samples are slow: the median one takes {:.1f} ms, the mean is {:.1f} ms. The slowest "
      "{} {}.",
      profile.median_sample_ms, profile.mean_sample_ms,
      names.size() == 1 ? "has the index" : "have the indices", join(names));
}

std::string sentence_of(const CodeProfile& profile) {
  std::string text = "Of the time for samples, " + largest_of(profile.shares, "is spent ", "in ");
  if (!profile.states.empty()) {
    text += "; that is " + largest_of(profile.states, "", "");
  }
  if (profile.cost_percent.samples < 2) {
    return fmt::format("{} (from a separate run with a profile, whose cost was not measured).",
                       text);
  }
  const double cost = profile.cost_percent.value;
  return fmt::format("{} (from separate runs with a profile, which costs {}).", text,
                     cost < 1 ? "less than 1 %" : fmt::format("{:.0f} %", cost));
}

}  // namespace penstock::isolate
