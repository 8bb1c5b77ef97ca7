// SPDX-License-Identifier: Apache-2.0
// Whole runs on this machine's cores: neither the place of normalisation nor the layout of batches
// changes the loss.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "bench/run/runner.h"
#include "dataflow/error.h"
#include "tests/bench/run/simulated_run.h"
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

TEST_F(NormaliseRuns, LossesEqualTheLossesOfBytes) {
  const RunResult bytes = completed(run("queue"));
  ASSERT_EQ(bytes.losses.size(), 4U);
  for (const auto& [feeder, tolerance] : {std::pair{"queue:normalise=device", 1e-5},
                                          {"queue:normalise=f32", 1e-5},
                                          {"queue:normalise=f16", 1e-2}}) {
    const RunResult result = completed(run(feeder));
    ASSERT_EQ(result.losses.size(), 4U);
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(result.losses[i], bytes.losses[i], tolerance * std::abs(bytes.losses[i]))
          << feeder << ", step " << i;
    }
  }
}

TEST_F(NormaliseRuns, EvaluationAndConstantBatchesAreNormalisedAsWell) {
  config_.eval_during_training_every_n_steps = 4;
  const RunResult bytes = run("queue"), floats = completed(run("queue:normalise=f32"));
  ASSERT_EQ(floats.evaluations.size(), 1U);
  ASSERT_EQ(bytes.evaluations.size(), 1U);
  EXPECT_EQ(floats.evaluations[0].images, 8);
  EXPECT_EQ(floats.evaluations[0].top1, bytes.evaluations[0].top1);
  config_.eval_during_training_every_n_steps = 0;
  const RunResult random = run("host"), random_floats = completed(run("host:normalise=f16"));
  ASSERT_EQ(random_floats.losses.size(), random.losses.size());
  EXPECT_NEAR(random_floats.losses[0], random.losses[0], 1e-2 * random.losses[0]);
}

TEST_F(NormaliseRuns, LossesAndEvaluationsOfNchwEqualNhwc) {
  config_.eval_during_training_every_n_steps = 4;
  for (const char* feeder : {"queue", "queue:normalise=f32", "queue:normalise=f16", "host",
                             "host:normalise=f32", "host:normalise=f16"}) {
    SCOPED_TRACE(feeder);
    config_.data_format = "NHWC";
    const RunResult nhwc = run(feeder);
    config_.data_format = "NCHW";
    const RunResult nchw = completed(run(feeder));
    EXPECT_EQ(nhwc.config.data_format, "NHWC");
    EXPECT_EQ(nchw.config.data_format, "NCHW");
    ASSERT_EQ(nchw.losses.size(), 4U);
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(nchw.losses[i], nhwc.losses[i], 1e-5 * std::abs(nhwc.losses[i])) << i;
    }
    ASSERT_EQ(nchw.evaluations.size(), 1U);
    EXPECT_EQ(nchw.evaluations[0].top1, nhwc.evaluations[0].top1);
  }
}

TEST_F(NormaliseRuns, FeedersSupplyNchwOrRefuseIt) {
  config_.data_format = "NCHW";
  for (const char* feeder : {"gpu", "cpu"}) {
    const RunResult result = run(feeder);
    EXPECT_EQ(result.exit_code, 0) << feeder << ": " << result.reason;
    EXPECT_EQ(result.config.data_format, "NCHW");
  }
  if (match_entry(feeder_table(), "messages") == nullptr) return;
  EXPECT_TRUE(says(thrown_by<ConfigError>([&] { run("messages"); }),
                   "--data-format is NCHW, but --fake-location messages supplies NHWC"));
}

TEST_F(NormaliseRuns, OtherWordsAreRefused) {
  const auto refusal = [&](const std::string& feeder) {
    return thrown_by<ConfigError>([&] { run(feeder); });
  };
  EXPECT_TRUE(says(refusal("queue:normalise=f64"), "expected device, f32 or f16"));
  EXPECT_TRUE(says(refusal("cpu:normalise=f32"), "normalise"));
}

}  // namespace
}  // namespace penstock
