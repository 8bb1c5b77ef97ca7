// SPDX-License-Identifier: Apache-2.0
// Steps whose loss or gradients are not finite.
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "bench/config/run_config.h"
#include "dataflow/probe.h"

namespace penstock {

/// Thread-safety: any thread may call any method.
class NonfiniteSteps {
 public:
  /// `probe` receives a note on the first step of each kind. Both arguments must outlive this.
  NonfiniteSteps(const RunConfig& config, Probe& probe) : config_(config), probe_(probe) {}

  /// Called inside the window, but only for nonfinite values; one or several ranks report each
  /// step. A finite loss means that gradients overflowed and the update was skipped. Returns the
  /// failure of a run that must stop, or null.
  std::exception_ptr add(std::int64_t step, bool finite_loss);
  void add_to(std::map<std::string, std::int64_t>& counters) const;

 private:
  const RunConfig& config_;
  Probe& probe_;
  mutable std::mutex mutex_;
  std::set<std::int64_t> nonfinite_, skipped_;
};

}  // namespace penstock
