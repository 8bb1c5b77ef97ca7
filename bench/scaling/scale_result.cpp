// SPDX-License-Identifier: Apache-2.0
#include "bench/scaling/scale_result.h"

#include <fmt/format.h>

#include <algorithm>

#include "dataflow/entry.h"

namespace penstock::scaling {

std::int64_t Rung::devices() const { return runs.empty() ? ranks : all_devices(runs[0].config); }

std::optional<Spread> Rung::img_per_s() const {
  if (runs.empty()) return std::nullopt;
  std::vector<double> rates;
  for (const RunResult& run : runs) rates.push_back(run.img_per_s);
  return spread(rates);
}

std::map<std::string, std::int32_t> Rung::ran_on() const {
  std::map<std::string, std::int32_t> machines;
  if (runs.empty()) return machines;
  for (const RankResult& rank : runs.front().ranks) ++machines[rank.host];
  return machines;
}

std::string ScaleResult::name() const {
  return fmt::format("{}_b{}", requested_model.empty() ? model : requested_model, batch_size);
}

std::optional<IdealRate> ideal_rate(const ScaleResult& result) {
  const Rung* least = nullptr;
  for (const Rung& rung : result.rungs) {
    if (rung.runs.empty()) continue;
    if (least == nullptr || rung.devices() < least->devices()) least = &rung;
  }
  if (least == nullptr) return std::nullopt;
  return IdealRate{least->devices(),
                   least->img_per_s()->median / static_cast<double>(least->devices())};
}

bool has_failures(const ScaleResult& result) {
  return std::ranges::any_of(result.rungs, [](const Rung& rung) { return !rung.failures.empty(); });
}

std::vector<std::string> notes_about_machines(const ScaleResult& result) {
  std::vector<std::string> notes;
  for (const Rung& rung : result.rungs) {
    const std::map<std::string, std::int32_t> machines = rung.ran_on();
    if (machines.empty() || rung.hosts.size() <= machines.size()) continue;
    std::vector<std::string> names, answered;
    for (const Host& host : rung.hosts) names.push_back(host.name);
    for (const auto& [machine, ranks] : machines) answered.push_back(machine);
    notes.push_back(fmt::format("{} ranks were asked for on {}, and ran on {} machine{}: {}",
                                rung.ranks, join(names), machines.size(),
                                machines.size() == 1 ? "" : "s", join(answered)));
  }
  return notes;
}

}  // namespace penstock::scaling
