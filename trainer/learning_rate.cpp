// SPDX-License-Identifier: Apache-2.0
#include "trainer/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "dataflow/error.h"
#include "dataflow/options.h"

namespace penstock {
namespace {

constexpr std::string_view kFlag = "--piecewise-learning-rate-schedule";

[[noreturn]] void refuse(std::string_view text, const std::string& problem) {
  throw ConfigError(
      "{} is '{}': {}; expected rate0;epoch1;rate1;..., such as '0.1;30;0.01;60;0.001'", kFlag,
      text, problem);
}

}  // namespace

float learning_rate(const LearningRatePlan& plan, std::int64_t step) {
  if (step < plan.warmup_steps) {
    return static_cast<float>(plan.initial * static_cast<double>(step) /
                              static_cast<double>(plan.warmup_steps));
  }
  double rate = plan.initial;
  for (const LearningRatePlan::Piece& piece : plan.pieces) {
    if (step >= piece.first_step) rate = piece.rate;
  }
  if (plan.decay_steps > 0) {
    const auto times = static_cast<double>(step / plan.decay_steps);
    rate = std::max(plan.minimum, rate * std::pow(plan.decay_factor, times));
  }
  return static_cast<float>(rate);
}

std::vector<EpochRate> parse_rate_schedule(std::string_view text) {
  std::vector<double> numbers;
  for (std::size_t begin = 0;;) {
    const std::size_t end = text.find(';', begin);
    const double number = parse_real(text.substr(begin, end - begin), kFlag);
    if (!(number >= 0) || std::isinf(number)) refuse(text, "a number is below 0 or not finite");
    numbers.push_back(number);
    if (end == std::string_view::npos) break;
    begin = end + 1;
  }
  if (numbers.size() % 2 == 0) refuse(text, "it ends in an epoch without a rate");
  std::vector<EpochRate> schedule{{0, numbers[0]}};
  for (std::size_t i = 1; i < numbers.size(); i += 2) {
    if (numbers[i] <= schedule.back().epoch) refuse(text, "its epochs do not grow");
    schedule.push_back({numbers[i], numbers[i + 1]});
  }
  return schedule;
}

LearningRatePlan plan_of_schedule(const std::vector<EpochRate>& schedule, double steps_per_epoch) {
  LearningRatePlan plan{.initial = schedule.front().rate};
  for (std::size_t i = 1; i < schedule.size(); ++i) {
    plan.pieces.push_back(
        {static_cast<std::int64_t>(schedule[i].epoch * steps_per_epoch), schedule[i].rate});
  }
  return plan;
}

LearningRatePlan resnet_plan(double initial, double steps_per_epoch) {
  LearningRatePlan plan{.initial = initial,
                        .warmup_steps = static_cast<std::int64_t>(5 * steps_per_epoch)};
  double rate = initial;
  for (const double epoch : {30, 60, 80, 90}) {
    rate /= 10;
    // The step at the boundary still has the previous rate.
    plan.pieces.push_back({static_cast<std::int64_t>(epoch * steps_per_epoch) + 1, rate});
  }
  return plan;
}

}  // namespace penstock
