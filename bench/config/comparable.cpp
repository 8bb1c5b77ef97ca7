// SPDX-License-Identifier: Apache-2.0
#include "bench/config/comparable.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "feeders/feeder.h"

namespace penstock {
namespace {

/// Keys that only feeders read, or that do not affect the measurement.
constexpr std::string_view kFeederKeys[] = {"fake_location",
                                            "data_dir",
                                            "on_bad_sample",
                                            "order",
                                            "page_cache",
                                            "loop",
                                            "loader_per",
                                            "prefetch",
                                            "huge_pages",
                                            "pinned_memory",
                                            "data_format",
                                            "batch_group_size",
                                            "feeder_threads",
                                            "timeout",
                                            "instrument",
                                            "display_every",
                                            "display_perf_ewma",
                                            "loss_type_to_report",
                                            "print_training_accuracy"};

}  // namespace

bool same_trainer(const RunConfig& a, const RunConfig& b) {
  return std::ranges::all_of(config_keys(), [&](const ConfigKey& key) {
    return std::ranges::find(kFeederKeys, key.name) != std::end(kFeederKeys) ||
           key.get(a) == key.get(b) || (key.name == "device_slots" && a.loop != b.loop);
  });
}

std::vector<const ConfigKey*> varied_keys(const std::vector<RunConfig>& configurations) {
  std::vector<const ConfigKey*> varied;
  for (const ConfigKey& key : config_keys()) {
    const bool differs = std::ranges::any_of(configurations, [&](const RunConfig& each) {
      return key.get(each) != key.get(configurations.front());
    });
    if (differs || key.name == "fake_location") varied.push_back(&key);
  }
  return varied;
}

bool is_ceiling(const RunConfig& config) {
  const FeederEntry* const feeder = entry_of(feeder_table(), config.fake_location);
  return feeder != nullptr && feeder->is_ceiling;
}

}  // namespace penstock
