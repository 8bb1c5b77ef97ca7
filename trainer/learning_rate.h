// SPDX-License-Identifier: Apache-2.0
// The learning rate as a function of the step, by the rules of tf_cnn_benchmarks.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace penstock {

/// Steps count from 0; epochs are real numbers. A plan is plain data, so threads may share it.
struct LearningRatePlan {
  /// A rate, and the first step that uses it.
  struct Piece {
    std::int64_t first_step = 0;
    double rate = 0;
  };
  double initial = 0.005;        ///< before the first piece
  std::vector<Piece> pieces{};   ///< in order of their steps
  std::int64_t decay_steps = 0;  ///< steps between multiplications by `decay_factor`; 0: never
  double decay_factor = 1;
  double minimum = 0;  ///< lower limit of the decay
  /// Before this step the rate is initial * step / warmup_steps, so the first step's rate is 0.
  std::int64_t warmup_steps = 0;
};

float learning_rate(const LearningRatePlan& plan, std::int64_t step);

/// One rate of a schedule, and the epoch at which it begins.
struct EpochRate {
  double epoch = 0, rate = 0;
};

/// "rate0;epoch1;rate1;...": the first rate begins at epoch 0. Throws ConfigError if the text has
/// another form or the epochs do not ascend.
std::vector<EpochRate> parse_rate_schedule(std::string_view text);

/// Converts a schedule to steps. The last step of a rate is int(epoch * steps_per_epoch) - 1.
LearningRatePlan plan_of_schedule(const std::vector<EpochRate>& schedule, double steps_per_epoch);

/// The schedule of the ResNets for ImageNet (Goyal et al., "Accurate, large minibatch SGD", 2017,
/// in tf_cnn_benchmarks' form): the rate grows for 5 epochs and drops to a tenth at the epochs 30,
/// 60, 80 and 90.
LearningRatePlan resnet_plan(double initial, double steps_per_epoch);

}  // namespace penstock
