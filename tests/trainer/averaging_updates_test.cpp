// SPDX-License-Identifier: Apache-2.0
// Updates whose ranks meet in each step, against their definitions in double.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "dataflow/error.h"
#include "tests/support/update_ranks.h"

namespace penstock {
namespace {

constexpr std::int32_t kSteps = 12;
constexpr double kRate = UpdateRanks::kRate;

using Weights = std::vector<double>;    // of one element, by rank
using Gradients = std::vector<double>;  // the same

/// What a definition sees of one element in one step: gradients are those of `read`.
struct Step {
  std::int64_t number;
  Gradients gradients;
  double reduced;  ///< by the rule
};

class AveragingUpdates : public ::testing::Test {
 protected:
  /// Follows one element: `definition` changes the ranks' weights in each step; gradients are taken
  /// at what stands in `weights` when the step begins.
  template <typename Definition>
  static Weights follow(std::int32_t ranks, std::size_t element, bool sums, Definition definition) {
    Weights weights(static_cast<std::size_t>(ranks), quadratic_start(0, element));
    for (std::int64_t number = 0; number < kSteps; ++number) {
      Step step{number, {}, 0};
      for (std::int32_t rank = 0; rank < ranks; ++rank) {
        const double w = weights[static_cast<std::size_t>(rank)];
        step.gradients.push_back(quadratic_gradient(w, rank, number, element));
        step.reduced += step.gradients.back() / (sums ? 1 : ranks);
      }
      definition(step, weights);
    }
    return weights;
  }

  /// Runs the update and compares every weight of every rank; `make_definition` makes one afresh
  /// for each element.
  template <typename MakeDefinition>
  void expect(const std::string& update, MakeDefinition make_definition,
              GradientReduction reduction = GradientReduction::mean) {
    for (const std::int32_t ranks : {1, 2, 3, 4}) {
      UpdateRanks run(ranks, update, clock_, reduction);
      run.steps(kSteps);
      for (std::size_t element = 0; element < kQuadraticElements; ++element) {
        const Weights expected =
            follow(ranks, element, reduction == GradientReduction::sum, make_definition());
        for (std::int32_t rank = 0; rank < ranks; ++rank) {
          const double wanted = expected[static_cast<std::size_t>(rank)];
          EXPECT_NEAR(run.weights(rank)[element], wanted, 2e-6 * (1 + std::abs(wanted)))
              << update << ", " << ranks << " ranks, rank " << rank << ", element " << element;
        }
      }
    }
  }

  static auto make_synchronous() {
    return [](const Step& step, Weights& weights) {
      for (double& w : weights) w -= kRate * step.reduced;
    };
  }
  /// W_{t+1} = W_t - rate G(W_{t-1}); the ranks hold what the next step reads.
  static auto make_staged() {
    return [current = Weights{}](const Step& step, Weights& weights) mutable {
      if (current.empty()) current = weights;
      weights = current;
      for (double& w : current) w -= kRate * step.reduced;
    };
  }

  SteadyClock clock_;
};

TEST_F(AveragingUpdates, SyncSgdAppliesTheMeanOfAllGradientsEverywhere) {
  expect("sync-sgd", make_synchronous);
}

TEST_F(AveragingUpdates, AllReducesOfTfCnnBenchmarksApplyTheSumWhereItIsAskedFor) {
  for (const char* update : {"distributed_all_reduce", "collective_all_reduce", "replicated"}) {
    expect(update, make_synchronous, GradientReduction::sum);
    expect(update, make_synchronous);
  }
}

TEST_F(AveragingUpdates, DistributedReplicatedTakesTheMeanInsideItsOneProcess) {
  expect("distributed_replicated", make_synchronous, GradientReduction::mean_sum);
}

TEST_F(AveragingUpdates, SmaMovesTowardsTheMeanAndAppliesOwnGradients) {
  const auto make_sma = [](double alpha) {
    return [alpha] {
      return [alpha](const Step& step, Weights& weights) {
        double mean = 0;
        for (const double w : weights) mean += w / static_cast<double>(weights.size());
        for (std::size_t rank = 0; rank < weights.size(); ++rank) {
          weights[rank] = (1 - alpha) * weights[rank] + alpha * mean - kRate * step.gradients[rank];
        }
      };
    };
  };
  expect("sma", make_sma(0.1));
  expect("sma:alpha=0.5", make_sma(0.5));
  expect("sma:alpha=1", make_sma(1), GradientReduction::sum);  // gradients are not reduced
}

TEST_F(AveragingUpdates, SmaRefusesAnAlphaThatIsNoShare) {
  for (const char* update : {"sma:alpha=0", "sma:alpha=1.5", "sma:alpha=-0.1"}) {
    EXPECT_THROW(UpdateRanks(2, update, clock_), ConfigError) << update;
  }
}

TEST_F(AveragingUpdates, RelaxedConsistencyAppliesTheStepBefore) {
  const auto make_relaxed = [] {
    return [before = 0.](const Step& step, Weights& weights) mutable {
      for (double& w : weights) w -= kRate * before;
      before = step.reduced;
    };
  };
  expect("replicated:consistency=relaxed", make_relaxed);
  expect("replicated:consistency=relaxed", make_relaxed, GradientReduction::sum);
  expect("replicated:consistency=strong", make_synchronous);
  EXPECT_THROW(UpdateRanks(1, "replicated:consistency=weak", clock_), ConfigError);
}

TEST_F(AveragingUpdates, StagedVarsReadWeightsOneUpdateOld) {
  expect("parameter_server:staged=true", make_staged);
  expect("parameter_server:staged=true,placement=greedy", make_staged);
}

TEST_F(AveragingUpdates, EveryPlacementOfHomesIsTheSameTraining) {
  for (const char* placement : {"first", "greedy", "split"}) {
    const std::string update = std::string("parameter_server:placement=") + placement;
    expect(update, make_synchronous);
    expect(update, make_synchronous, GradientReduction::sum);
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
  EXPECT_TRUE(one_home.strategy(0).rank_0_knows_all());
  EXPECT_FALSE(spread.strategy(0).rank_0_knows_all());
}

}  // namespace
}  // namespace penstock
