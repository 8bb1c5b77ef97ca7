// SPDX-License-Identifier: Apache-2.0
// Whole runs with a simulated clock, whose results must be exact.
#pragma once

#include <gtest/gtest.h>

#include <string_view>

#include "bench/run/runner.h"
#include "tests/support/thrown_by.h"
#include "tests/support/tiny_model.h"
#include "tests/support/virtual_clock.h"

namespace penstock {

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

/// Does a note of the result contain `text`?
inline bool notes_say(const RunResult& result, std::string_view text) {
  return mentions(result.notes, text);
}

}  // namespace penstock
