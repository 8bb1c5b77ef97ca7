// SPDX-License-Identifier: Apache-2.0
// Training runs of the tiny backend on images of four colours.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "bench/run/runner.h"
#include "dataflow/error.h"
#include "tests/support/coloured_images.h"
#include "tests/support/thrown_by.h"
#include "tests/support/tiny_backend.h"

namespace penstock {

class TrainingFixture : public ::testing::Test {
 protected:
  static constexpr int kClasses = 4, kImagesPerClass = 10;

  TrainingFixture() {
    write_coloured_images(folder_, "data/train", kClasses, kImagesPerClass);
    config_.fake_location = "queue:crop=full";
    config_.data_dir = (folder_ / "data/train").string();
    config_.classes = kClasses;
    config_.batch_size = 8;
    config_.num_batches = 20;
    config_.num_warmup_batches = 0;
    config_.init_learning_rate = 0.05;
    config_.order = "strict";
    config_.feeder_threads = 1;
  }

  Runner::Components components() const {
    RunConfig known = config_;
    known.device = "emulated";
    known.model = "trivial";
    Runner::Components components = find_components(known);
    components.backend = &tiny_backend;
    components.model = &tiny_model;
    return components;
  }

  RunResult run(RunListener& listener, std::stop_token stop = {}) {
    config_.device = device_;
    return Runner(config_, clock_, components()).run(listener, std::move(stop));
  }
  RunResult run() {
    RunListener silent;
    return run(silent);
  }
  /// The reason why the configuration is refused; "accepted" if it is not.
  std::string refusal() {
    config_.device = device_;
    try {
      Runner(config_, clock_, components());
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }

  TempFolder folder_;
  SteadyClock clock_;
  RunConfig config_;
  std::string device_ = "tiny";
};

/// True if a note of `result` contains `part`. A loaded machine adds notes of its own, so a test
/// must not expect a note at a certain place.
inline bool notes(const RunResult& result, std::string_view part) {
  return mentions(result.notes, part);
}

}  // namespace penstock
