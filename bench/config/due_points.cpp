// SPDX-License-Identifier: Apache-2.0
#include "bench/config/due_points.h"

#include <algorithm>
#include <cmath>

#include "dataflow/error.h"
#include "dataflow/options.h"

namespace penstock {
namespace {

/// Rounds `steps` up to a whole step. Sums of fractions may end slightly above a whole number.
std::int64_t round_up(double steps) {
  constexpr double kSlack = 1e-6;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(steps - kSlack)));
}

}  // namespace

DuePoints DuePoints::every(double period) {
  DuePoints points;
  points.period_ = std::max(period, 1.0);
  return points;
}

DuePoints DuePoints::at(std::vector<std::int64_t> steps) {
  DuePoints points;
  points.steps_ = std::move(steps);
  std::ranges::sort(points.steps_);
  return points;
}

std::int64_t DuePoints::next_after(std::int64_t step) const {
  step = std::max<std::int64_t>(step, 0);
  const auto listed = std::ranges::upper_bound(steps_, step);
  if (listed != steps_.end()) return *listed;
  if (period_ == 0) return kNever;
  const double done = std::floor(static_cast<double>(step) / period_);
  for (double count = std::max(1.0, done);; ++count) {
    if (const std::int64_t point = round_up(count * period_); point > step) return point;
  }
}

std::vector<double> parse_numbers(std::string_view text, std::string_view flag) {
  std::vector<double> numbers;
  for (std::size_t begin = 0;;) {
    const std::size_t comma = text.find(',', begin);
    const double number = parse_real(text.substr(begin, comma - begin), flag);
    if (!(number > 0) || number > 1e15) {
      throw ConfigError("{} is '{}'; expected numbers above 0, such as 10,20,50", flag, text);
    }
    numbers.push_back(number);
    if (comma == std::string_view::npos) return numbers;
    begin = comma + 1;
  }
}

DuePoints evaluation_points(const RunConfig& config, double steps_per_epoch) {
  const bool by_steps = config.eval_during_training_every_n_steps > 0;
  const bool by_epochs = config.eval_during_training_every_n_epochs > 0;
  const bool at_steps = !config.eval_during_training_at_specified_steps.empty();
  const bool at_epochs = !config.eval_during_training_at_specified_epochs.empty();
  const int stated = int{by_steps} + int{by_epochs} + int{at_steps} + int{at_epochs};
  if (stated > 1) {
    throw ConfigError(
        "--eval-during-training-every-n-steps, -every-n-epochs, -at-specified-steps and "
        "-at-specified-epochs exclude each other; keep one");
  }
  if (stated > 0 && (config.eval || config.forward_only)) {
    throw ConfigError("--eval-during-training-* needs training; leave out --{}",
                      config.eval ? "eval" : "forward-only");
  }
  if (stated == 0 && config.stop_at_top_1_accuracy > 0) {
    throw ConfigError(
        "--stop-at-top-1-accuracy needs evaluations; add --eval-during-training-every-n-epochs 1");
  }
  if (by_steps) {
    return DuePoints::every(static_cast<double>(config.eval_during_training_every_n_steps));
  }
  if (by_epochs) {
    return DuePoints::every(config.eval_during_training_every_n_epochs * steps_per_epoch);
  }
  std::vector<std::int64_t> steps;
  const double factor = at_steps ? 1 : steps_per_epoch;
  const std::string& list = at_steps ? config.eval_during_training_at_specified_steps
                                     : config.eval_during_training_at_specified_epochs;
  if (!list.empty()) {
    for (const double number : parse_numbers(list, "--eval-during-training-at-specified-*")) {
      steps.push_back(round_up(number * factor));
    }
  }
  return DuePoints::at(std::move(steps));
}

}  // namespace penstock
