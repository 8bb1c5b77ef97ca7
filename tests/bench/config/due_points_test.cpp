// SPDX-License-Identifier: Apache-2.0
#include "bench/config/due_points.h"

#include <gtest/gtest.h>

#include "dataflow/error.h"

namespace penstock {
namespace {

std::vector<std::int64_t> up_to(const DuePoints& points, std::int64_t last) {
  std::vector<std::int64_t> steps;
  for (std::int64_t step = -5; (step = points.next_after(step)) <= last;) steps.push_back(step);
  return steps;
}

using Steps = std::vector<std::int64_t>;

TEST(DuePoints, WholePeriodsAreTheirMultiples) {
  EXPECT_EQ(up_to(DuePoints::every(5), 16), (Steps{5, 10, 15}));
  EXPECT_EQ(up_to(DuePoints::every(0.25), 3), (Steps{1, 2, 3})) << "at most once a step";
}

TEST(DuePoints, PartsOfStepsAreRoundedUpWithoutDrifting) {
  EXPECT_EQ(up_to(DuePoints::every(2.5), 10), (Steps{3, 5, 8, 10}));
  EXPECT_EQ(up_to(DuePoints::every(10.0 / 3), 20), (Steps{4, 7, 10, 14, 17, 20}));
}

TEST(DuePoints, ListsNeedNoOrderAndRepeatNothing) {
  EXPECT_EQ(up_to(DuePoints::at({7, 2, 7}), 100), (Steps{2, 7}));
  EXPECT_TRUE(DuePoints::at({7}).is_due(7));
  EXPECT_FALSE(DuePoints::at({7}).is_due(6));
  EXPECT_FALSE(DuePoints::every(5).is_due(0));
  EXPECT_EQ(DuePoints().next_after(0), DuePoints::kNever);
}

TEST(EvaluationPoints, EpochsBecomeSteps) {
  RunConfig config;
  config.eval_during_training_every_n_epochs = 0.5;
  EXPECT_EQ(up_to(evaluation_points(config, 5), 10), (Steps{3, 5, 8, 10}));
  config = {};
  config.eval_during_training_at_specified_epochs = "2,0.5";
  EXPECT_EQ(up_to(evaluation_points(config, 5), 100), (Steps{3, 10}));
  config = {};
  config.eval_during_training_at_specified_steps = "4,9";
  EXPECT_EQ(up_to(evaluation_points(config, 5), 100), (Steps{4, 9}));
  EXPECT_TRUE(evaluation_points({}, 5).empty());
}

TEST(EvaluationPoints, FlagsThatExcludeEachOtherAreRefused) {
  RunConfig config;
  config.eval_during_training_every_n_epochs = 1;
  config.forward_only = true;
  EXPECT_THROW(evaluation_points(config, 5), ConfigError);
  config.forward_only = false;
  config.eval_during_training_every_n_steps = 10;
  EXPECT_THROW(evaluation_points(config, 5), ConfigError);
  config = {};
  config.stop_at_top_1_accuracy = 0.5;
  EXPECT_THROW(evaluation_points(config, 5), ConfigError);
}

TEST(Numbers, ListsOfOtherThingsAreRefused) {
  EXPECT_EQ(parse_numbers("10,20.5", "--x"), (std::vector<double>{10, 20.5}));
  for (const char* text : {"", "1,", "0", "-1", "a", "1,nan"}) {
    EXPECT_THROW(parse_numbers(text, "--x"), ConfigError) << text;
  }
}

}  // namespace
}  // namespace penstock
