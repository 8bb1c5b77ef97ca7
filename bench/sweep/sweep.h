// SPDX-License-Identifier: Apache-2.0
// Builds the configurations that a sweep measures: the cross product of lists over the keys of
// RunConfig. Pure values, no processes.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "bench/config/run_config.h"

namespace penstock {

class Sweep {
 public:
  /// `list` is one value of the key, or several separated by commas. Component values keep their
  /// options: `gpu,zmq-consume:hwm=8,bind=true` are two values. Replaces an earlier list of the
  /// key. Throws ConfigError for an unknown key, an invalid value or a repeated value.
  void set(std::string_view key, std::string_view list);

  /// Every combination. Keys that were not set have their value in `base`. Feeders vary fastest, so
  /// that the feeders of one trainer are adjacent.
  std::vector<RunConfig> expand(const RunConfig& base) const;

 private:
  std::map<std::string, std::vector<std::string>, std::less<>> axes_;  // by key
};

/// Why this program cannot run the configuration on this machine; empty if it can, as far as it can
/// be checked without a run. Throws ConfigError for user errors.
std::string unavailable_reason(const RunConfig& config);

}  // namespace penstock
