// SPDX-License-Identifier: Apache-2.0
#include "bench/record/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace penstock {

double median(std::span<const double> values) {
  if (values.empty()) return 0;
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

Spread spread(std::span<const double> values) {
  if (values.empty()) return {};
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return {median(values), *low, *high};
}

StepSpeed step_speed(double images, std::span<const double> seconds, double ewma) {
  if (seconds.empty()) return {};
  const auto count = static_cast<double>(seconds.size());
  double time_sum = 0, weight_sum = 0, weight = 1;
  for (auto time = seconds.rbegin(); time != seconds.rend(); ++time) {
    time_sum += weight * *time;
    weight_sum += weight;
    weight *= 1 - ewma;
  }
  std::vector<double> speeds;
  speeds.reserve(seconds.size());
  double speed_sum = 0;
  for (const double time : seconds) speed_sum += speeds.emplace_back(images / time);
  const double speed_mean = speed_sum / count;
  double variance = 0;
  for (const double speed : speeds) variance += (speed - speed_mean) * (speed - speed_mean) / count;
  const double middle = median(speeds);
  for (double& speed : speeds) speed = std::abs(speed - middle);
  return {images * weight_sum / time_sum, std::sqrt(variance / count), 1.4826 * median(speeds)};
}

InputCost input_cost(double without_img_per_s, double with_img_per_s, double images_per_step) {
  return {100 * (1 - with_img_per_s / without_img_per_s),
          1e3 * images_per_step * (1 / with_img_per_s - 1 / without_img_per_s),
          without_img_per_s - with_img_per_s};
}

double most_hidden_share(const ReserveUse& use) {
  if (!(use.consumed > 0)) return 1;
  const double fall = std::min(use.start, std::max(0.0, use.start - use.end) + use.error);
  return std::min(1.0, (fall + use.outside) / use.consumed);
}

bool is_draining(const ReserveUse& use) {
  const double fall = use.start - use.end;
  return fall > std::max(use.error, kMaxReserveFall * use.consumed) ||
         use.outside > kMostHidden * use.consumed;
}

bool is_long_enough(const ReserveUse& use) {
  return use.consumed >= kMinReserves * (use.start + use.outside) && !is_draining(use);
}

}  // namespace penstock
