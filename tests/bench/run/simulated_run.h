// SPDX-License-Identifier: Apache-2.0
// Whole runs with a simulated clock, whose results must be exact, and helpers for other whole runs.
#pragma once

#include <gtest/gtest.h>

#include <stop_token>

#include "bench/run/runner.h"
#include "dataflow/error.h"
#include "tests/support/thrown_by.h"
#include "tests/support/tiny_model.h"
#include "tests/support/virtual_clock.h"

namespace penstock {

/// The result of a run that must go well. Throws its reason if it did not, which ends the test.
inline RunResult completed(RunResult result) {
  if (result.exit_code != 0) throw Error("exit code {}: {}", result.exit_code, result.reason);
  return result;
}

/// Stops its run after a given step.
class StopAfter final : public RunListener {
 public:
  explicit StopAfter(std::size_t step) : step_(step) {}
  void step(const StepReport& step) override {
    if (step.index + 1 == step_) source.request_stop();
  }
  std::stop_source source;

 private:
  const std::size_t step_;
};

class SimulatedRun : public testing::Test {
 protected:
  /// Feeder and backend need not be in the tables; null: those that config_ names.
  RunResult run(const FeederEntry* feeder = nullptr, const BackendEntry* backend = nullptr) {
    RunConfig known = config_;
    if (feeder != nullptr) known.fake_location = "gpu";
    if (backend != nullptr) known.device = "emulated";
    Runner::Components components = find_components(known);
    components.model = model_;
    if (feeder != nullptr) components.feeder = feeder;
    if (backend != nullptr) components.backend = backend;
    VirtualClock clock;
    RunListener silent;
    return Runner(config_, clock, components).run(silent, {});
  }

  RunConfig config_;
  const ModelEntry* model_ = &kTinyModel;
};

}  // namespace penstock
