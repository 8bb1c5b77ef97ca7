// SPDX-License-Identifier: Apache-2.0
// Which configurations a sweep measures: the cross product of lists over the keys of RunConfig.
// Pure values, no processes.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "bench/run_config.h"

namespace penstock {

class Sweep {
 public:
  /// `list` is one value of the key, or several separated by commas; component values keep their
  /// options
  /// (`gpu,zmq-consume:hwm=8,bind=true` are two). Replaces an earlier list of the key. Throws
  /// ConfigError for an unknown key, a value that the key refuses, and one that is there twice.
  void set(std::string_view key, std::string_view list);

  /// Every combination, over the values of `base` for keys that were not set. Feeders vary fastest,
  /// so that those of one trainer stand together.
  std::vector<RunConfig> expand(const RunConfig& base) const;

 private:
  std::map<std::string, std::vector<std::string>, std::less<>> axes_;  // by key
};

/// Do both configurations train alike, so that their rates differ by what feeds them alone? All
/// keys are equal but `fake_location` and those that feeders alone read, or nobody who measures:
/// data_dir, on_bad_sample, order, page_cache, prefetch, huge_pages, feeder_threads, timeout,
/// display_every, display_perf_ewma, loss_type_to_report and print_training_accuracy.
bool same_trainer(const RunConfig& a, const RunConfig& b);

/// The keys that tell configurations apart, in the order of the table; `fake_location` among them.
/// At least one configuration.
std::vector<const ConfigKey*> varied_keys(const std::vector<RunConfig>& configurations);

/// Why this program cannot run the configuration on this machine; empty when it can, as far as can
/// be told without running it. Throws ConfigError for what the user mistyped.
std::string unavailable_reason(const RunConfig& config);

/// Is its feeder one whose batches cost nothing? False for feeders that this program does not have.
bool is_ceiling(const RunConfig& config);

}  // namespace penstock
