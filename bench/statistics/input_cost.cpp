// SPDX-License-Identifier: Apache-2.0
#include "bench/statistics/input_cost.h"

#include <algorithm>
#include <numeric>

#include "dataflow/error.h"

namespace penstock::statistics {
namespace {

/// 100 (1 - 1 / ratio), for a ratio of step times.
double percent_of(double ratio) { return ratio > 0 ? 100 * (1 - 1 / ratio) : -kInfinity; }

std::vector<double> percents_of(std::span<const Pair> step_ms) {
  std::vector<double> percents;
  for (const Pair& pair : step_ms) percents.push_back(percent_of(pair.b / pair.a));
  return percents;
}

/// Indices of the middle value, or of the two middle ones.
std::vector<std::size_t> middle_of(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  const std::size_t half = order.size() / 2;
  if (order.size() % 2 == 1) return {order[half]};
  return {order[half - 1], order[half]};
}

Estimate spread_of(std::span<const double> values, std::span<const std::size_t> middle) {
  double sum = 0;
  for (const std::size_t index : middle) sum += values[index];
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return {sum / static_cast<double>(middle.size()), *low, *high, values.size(), true};
}

Estimate within(Estimate estimate, double low, double high) {
  for (double* value : {&estimate.value, &estimate.low, &estimate.high}) {
    *value = std::clamp(*value, low, high);
  }
  return estimate;
}

/// Raises the upper bounds: the feeder may have made only 1 - `share` of its apparent batches.
void include_hidden(CostEstimate& cost, std::span<const Pair> step_ms, double images,
                    double share) {
  cost.percent.high = 100 - (100 - cost.percent.high) * (1 - share);
  for (const Pair& pair : step_ms) {
    const double made_in_ms = share < 1 ? pair.b / (1 - share) : kInfinity;
    cost.ms_per_step.high = std::max(cost.ms_per_step.high, made_in_ms - pair.a);
    cost.img_per_s_lost.high =
        std::max(cost.img_per_s_lost.high, 1e3 * images * (1 / pair.a - 1 / made_in_ms));
  }
}

}  // namespace

RoundSummary::RoundSummary(std::span<const Pair> step_ms) {
  PENSTOCK_ASSERT(!step_ms.empty());
  const std::vector<double> percents = percents_of(step_ms);
  middle_ = middle_of(percents);
  const double least = *std::min_element(percents.begin(), percents.end());
  is_spread_ = step_ms.size() < kRoundsForInterval || (least > 0 && paired_ratio(step_ms).low < 1);
}

Estimate RoundSummary::of(std::span<const double> values) const {
  return is_spread_ ? spread_of(values, middle_) : mean_of_blocks(values);
}

Estimate summarise_rounds(std::span<const double> values) {
  PENSTOCK_ASSERT(!values.empty());
  if (values.size() >= kRoundsForInterval) return mean_of_blocks(values);
  return spread_of(values, middle_of(values));
}

CostEstimate estimate_cost(std::span<const Pair> step_ms, double images, const CostTargets& targets,
                           bool same_rounds) {
  const RoundSummary summary(step_ms);
  CostEstimate cost;
  cost.margin = targets.margin;
  cost.same_rounds = same_rounds;
  cost.rounds = percents_of(step_ms);
  std::vector<double> longer_ms, lost;
  for (const Pair& pair : step_ms) {
    longer_ms.push_back(pair.b - pair.a);
    lost.push_back(1e3 * images / pair.a - 1e3 * images / pair.b);
  }
  if (summary.is_spread() || !same_rounds) {
    cost.percent = spread_of(cost.rounds, middle_of(cost.rounds));
  } else {
    const Estimate ratio = paired_ratio(step_ms);
    cost.percent = {percent_of(ratio.value), percent_of(ratio.low), percent_of(ratio.high),
                    ratio.samples};
  }
  cost.unbounded_percent = cost.percent.value;
  cost.percent = within(cost.percent, 0, 100);
  cost.ms_per_step = within(summary.of(longer_ms), 0, kInfinity);
  cost.img_per_s_lost = within(summary.of(lost), 0, kInfinity);
  if (!cost.percent.is_spread) {  // the share that the percentage says, of the ceiling's mean step
    double ceiling_ms = 0;
    for (const Pair& pair : step_ms) ceiling_ms += pair.a / static_cast<double>(step_ms.size());
    const double each = 1e3 * images / ceiling_ms / 100;
    cost.img_per_s_lost = {each * cost.percent.value, each * cost.percent.low,
                           each * cost.percent.high, cost.percent.samples};
  }
  if (targets.most_hidden > 0) include_hidden(cost, step_ms, images, targets.most_hidden);
  if (!same_rounds) return cost;
  cost.verdict = judge(step_ms, targets.margin);
  if (*std::ranges::min_element(cost.rounds) > kBeyondNoisePercent) cost.verdict = Verdict::slower;
  if (targets.most_hidden > 0 && cost.verdict != Verdict::slower) {
    cost.verdict = Verdict::undecided;  // a longer window would decide, not more rounds
    return cost;
  }
  if (cost.verdict == Verdict::undecided) {
    cost.more_rounds = step_ms.size() < kRoundsForVerdict ? kRoundsForVerdict - step_ms.size()
                                                          : more_pairs(step_ms, targets.half_width);
  }
  return cost;
}

}  // namespace penstock::statistics
