// SPDX-License-Identifier: Apache-2.0
// Whole runs on this machine's cores: the place of normalisation does not change the loss.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "bench/run/runner.h"
#include "dataflow/error.h"
#include "tests/support/coloured_images.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

class NormaliseRuns : public testing::Test {
 protected:
  void SetUp() override {
    if (match_entry(backend_table(), "cpu") == nullptr) GTEST_SKIP() << "built without oneDNN";
    write_coloured_images(folder_, "data/train", 4, 6);
    write_coloured_images(folder_, "data/val", 4, 2);
    config_.data_dir = (folder_ / "data/train").string();
    config_.device = "cpu";
    config_.model = "trivial";
    config_.image_size = 32;
    config_.classes = 4;
    config_.batch_size = 8;
    config_.num_batches = 4;
    config_.num_warmup_batches = 0;
    config_.order = "strict";
    config_.feeder_threads = 2;
  }
  RunResult run(const std::string& feeder) {
    config_.fake_location = feeder;
    RunListener silent;
    return Runner(config_, clock_, find_components(config_)).run(silent, {});
  }
  TempFolder folder_;
  SteadyClock clock_;
  RunConfig config_;
};

TEST_F(NormaliseRuns, LossesAreThoseOfBytes) {
  const RunResult bytes = run("queue");
  ASSERT_EQ(bytes.exit_code, 0) << bytes.reason;
  ASSERT_EQ(bytes.losses.size(), 4U);
  for (const auto& [feeder, tolerance] : {std::pair{"queue:normalise=device", 1e-5},
                                          {"queue:normalise=f32", 1e-5},
                                          {"queue:normalise=f16", 1e-2}}) {
    const RunResult result = run(feeder);
    ASSERT_EQ(result.exit_code, 0) << result.reason;
    ASSERT_EQ(result.losses.size(), 4U);
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(result.losses[i], bytes.losses[i], tolerance * std::abs(bytes.losses[i]))
          << feeder << ", step " << i;
    }
  }
}

TEST_F(NormaliseRuns, EvaluationAndConstantBatchesAreNormalisedAsWell) {
  config_.eval_during_training_every_n_steps = 4;
  const RunResult bytes = run("queue"), floats = run("queue:normalise=f32");
  ASSERT_EQ(floats.exit_code, 0) << floats.reason;
  ASSERT_EQ(floats.evaluations.size(), 1U);
  ASSERT_EQ(bytes.evaluations.size(), 1U);
  EXPECT_EQ(floats.evaluations[0].images, 8);
  EXPECT_EQ(floats.evaluations[0].top1, bytes.evaluations[0].top1);
  config_.eval_during_training_every_n_steps = 0;
  const RunResult random = run("host"), random_floats = run("host:normalise=f16");
  ASSERT_EQ(random_floats.exit_code, 0) << random_floats.reason;
  ASSERT_EQ(random_floats.losses.size(), random.losses.size());
  EXPECT_NEAR(random_floats.losses[0], random.losses[0], 1e-2 * random.losses[0]);
}

TEST_F(NormaliseRuns, OtherWordsAreRefused) {
  const auto refusal = [&](const std::string& feeder) {
    try {
      run(feeder);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_TRUE(says(refusal("queue:normalise=f64"), "expected device, f32 or f16"));
  EXPECT_TRUE(says(refusal("cpu:normalise=f32"), "normalise"));
}

}  // namespace
}  // namespace penstock
