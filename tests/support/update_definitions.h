// SPDX-License-Identifier: Apache-2.0
// The definitions of updates whose ranks meet in each step, applied to the quadratic of
// update_ranks.h in double, one element at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/support/update_ranks.h"

namespace penstock {

/// Values of one element, by rank.
using RankValues = std::vector<double>;

/// The data of one element in one step.
struct DefinedStep {
  std::int64_t number;
  RankValues gradients;  ///< at the weights before the step
  double reduced;        ///< the gradients reduced by the run's rule
};

/// Changes the ranks' weights in a step. It may have state, so there is a new one for each element.
using Definition = std::function<void(const DefinedStep&, RankValues& weights)>;
using MakeDefinition = std::function<Definition()>;

/// The ranks of a run, and how their gradients are reduced.
struct DefinedRun {
  std::int32_t ranks = 1;
  std::int32_t local_ranks = 1;  ///< ranks in each process
  GradientReduction reduction = GradientReduction::mean;
  std::int64_t steps = 12;

  double divisor() const {
    if (reduction == GradientReduction::sum) return 1;
    return reduction == GradientReduction::mean ? ranks : local_ranks;
  }
};

/// The ranks' weights after the last step.
inline RankValues follow(const DefinedRun& run, std::size_t element, const MakeDefinition& make) {
  const Definition definition = make();
  RankValues weights(static_cast<std::size_t>(run.ranks), quadratic_start(0, element));
  for (std::int64_t number = 0; number < run.steps; ++number) {
    DefinedStep step{number, {}, 0};
    for (std::int32_t rank = 0; rank < run.ranks; ++rank) {
      const double w = weights[static_cast<std::size_t>(rank)];
      step.gradients.push_back(quadratic_gradient(w, rank, number, element));
      step.reduced += step.gradients.back() / run.divisor();
    }
    definition(step, weights);
  }
  return weights;
}

inline constexpr double kDefinedRate = UpdateRanks::kRate;

/// Every rank, or the weights' home, applies the reduced gradient.
inline Definition define_synchronous() {
  return [](const DefinedStep& step, RankValues& weights) {
    for (double& w : weights) w -= kDefinedRate * step.reduced;
  };
}
/// Applies the reduced gradient of the step before.
inline Definition define_relaxed() {
  return [before = 0.](const DefinedStep& step, RankValues& weights) mutable {
    for (double& w : weights) w -= kDefinedRate * before;
    before = step.reduced;
  };
}
/// W_{t+1} = W_t - rate G(W_{t-1}); the ranks hold the weights that the next step reads.
inline Definition define_staged() {
  return [current = RankValues{}](const DefinedStep& step, RankValues& weights) mutable {
    if (current.empty()) current = weights;
    weights = current;
    for (double& w : current) w -= kDefinedRate * step.reduced;
  };
}
inline Definition define_independent() {
  return [](const DefinedStep& step, RankValues& weights) {
    for (std::size_t rank = 0; rank < weights.size(); ++rank) {
      weights[rank] -= kDefinedRate * step.gradients[rank];
    }
  };
}
inline MakeDefinition define_sma(double alpha) {
  return [alpha] {
    return [alpha](const DefinedStep& step, RankValues& weights) {
      double mean = 0;
      for (const double w : weights) mean += w / static_cast<double>(weights.size());
      for (std::size_t rank = 0; rank < weights.size(); ++rank) {
        weights[rank] =
            (1 - alpha) * weights[rank] + alpha * mean - kDefinedRate * step.gradients[rank];
      }
    };
  };
}

struct DefinedUpdate {
  std::string update;  ///< with options
  MakeDefinition make;
  bool identical = true;  ///< all ranks have bit-identical weights
};
inline std::ostream& operator<<(std::ostream& out, const DefinedUpdate& update) {
  return out << update.update;
}

/// Every update whose ranks meet in each step, with its options.
inline std::vector<DefinedUpdate> defined_updates() {
  return {{"replicated", define_synchronous},
          {"horovod", define_synchronous},
          {"sync-sgd", define_synchronous},
          {"distributed_all_reduce", define_synchronous},
          {"collective_all_reduce", define_synchronous},
          {"distributed_replicated", define_synchronous},
          {"parameter_server", define_synchronous},
          {"parameter_server:memory=host", define_synchronous},
          {"parameter_server:placement=greedy", define_synchronous},
          {"parameter_server:placement=split", define_synchronous},
          {"parameter_server:staged=true", define_staged},
          {"parameter_server:staged=true,placement=greedy", define_staged},
          {"replicated:consistency=relaxed", define_relaxed},
          {"sma", define_sma(0.1), false},
          {"sma:alpha=0.5", define_sma(0.5), false},
          {"sma:alpha=1", define_sma(1), false},
          {"independent", define_independent, false}};
}

}  // namespace penstock
