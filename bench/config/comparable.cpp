// SPDX-License-Identifier: Apache-2.0
#include "bench/config/comparable.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string_view>

#include "dataflow/entry.h"
#include "dataflow/options.h"
#include "feeders/feeder.h"

namespace penstock {
namespace {

/// Keys that do not change the trainer.
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
  const std::span<const ConfigKey> keys = config_keys();
  return std::all_of(keys.begin(), keys.end(), [&](const ConfigKey& key) {
    return std::ranges::find(kFeederKeys, key.name) != std::end(kFeederKeys) ||
           key.get(a) == key.get(b) || (key.name == "device_slots" && a.loop != b.loop);
  });
}

std::vector<const ConfigKey*> varied_keys(const std::vector<RunConfig>& configurations) {
  std::vector<const ConfigKey*> varied;
  for (const ConfigKey& key : config_keys()) {
    const bool differs =
        std::any_of(configurations.begin(), configurations.end(),
                    [&](const auto& c) { return key.get(c) != key.get(configurations.front()); });
    if (differs || key.name == "fake_location") varied.push_back(&key);
  }
  return varied;
}

bool is_ceiling(const RunConfig& config) {
  const FeederEntry* const feeder =
      match_entry(feeder_table(), parse_component(config.fake_location).name);
  return feeder != nullptr && feeder->is_ceiling;
}

}  // namespace penstock
