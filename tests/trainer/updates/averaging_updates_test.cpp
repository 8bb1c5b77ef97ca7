// SPDX-License-Identifier: Apache-2.0
// Tests updates whose ranks meet in each step, with ranks as threads, against their definitions in
// double. ../cluster/rank_updates.cpp does the same with processes.
#include <gtest/gtest.h>

#include <cmath>

#include "dataflow/error.h"
#include "tests/support/entry_names.h"
#include "tests/support/update_definitions.h"

namespace penstock {
namespace {

class DefinedUpdates : public ::testing::TestWithParam<DefinedUpdate> {
 protected:
  SteadyClock clock_;
};

TEST_P(DefinedUpdates, FollowTheirDefinition) {
  const DefinedUpdate& update = GetParam();
  for (const GradientReduction reduction :
       {GradientReduction::sum, GradientReduction::mean, GradientReduction::mean_sum}) {
    for (const std::int32_t ranks : {1, 2, 3, 4}) {
      const DefinedRun defined{.ranks = ranks, .local_ranks = ranks, .reduction = reduction};
      UpdateRanks run(ranks, update.update, clock_, reduction);
      run.steps(static_cast<std::int32_t>(defined.steps));
      for (std::int32_t rank = 0; update.identical && rank < ranks; ++rank) {
        EXPECT_EQ(run.weights(rank), run.weights(0)) << ranks << " ranks, rank " << rank;
      }
      for (std::size_t element = 0; element < kQuadraticElements; ++element) {
        const RankValues expected = follow(defined, element, update.make);
        for (std::int32_t rank = 0; rank < ranks; ++rank) {
          const double exact = expected[static_cast<std::size_t>(rank)];
          EXPECT_NEAR(run.weights(rank)[element], exact, 2e-6 * (1 + std::abs(exact)))
              << ranks << " ranks, rank " << rank << ", element " << element;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, DefinedUpdates, ::testing::ValuesIn(defined_updates()),
                         [](const auto& test) { return test_name(test.param.update); });

class AveragingUpdates : public ::testing::Test {
 protected:
  static constexpr std::int32_t kSteps = 12;
  SteadyClock clock_;
};

TEST_F(AveragingUpdates, RefuseOptionsThatMakeNoSense) {
  for (const char* update :
       {"sma:alpha=0", "sma:alpha=1.5", "sma:alpha=-0.1", "replicated:consistency=weak"}) {
    EXPECT_THROW(UpdateRanks(2, update, clock_), ConfigError) << update;
  }
}

TEST_F(AveragingUpdates, SpreadHomesRememberWhatTheirOptimizerNeeds) {
  constexpr std::int32_t kRanks = 3;
  UpdateRanks one_home(kRanks, "parameter_server", clock_, GradientReduction::mean, "momentum");
  UpdateRanks spread(kRanks, "parameter_server:placement=greedy", clock_, GradientReduction::mean,
                     "momentum");
  one_home.steps(kSteps);
  spread.steps(kSteps);
  for (std::int32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(spread.weights(rank), one_home.weights(rank)) << "rank " << rank;
  }
  EXPECT_TRUE(one_home.kept(0).rank_0_knows_all);
  EXPECT_FALSE(spread.kept(0).rank_0_knows_all);
}

}  // namespace
}  // namespace penstock
