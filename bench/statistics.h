// SPDX-License-Identifier: Apache-2.0
// The arithmetic of results: pure functions of numbers, no clocks.
#pragma once

#include <span>
#include <vector>

namespace penstock {

/// Middle value, mean of the two middle ones for even counts; 0 for none.
double median(std::span<const double> values);

struct Spread {
  double median = 0, low = 0, high = 0;
};
Spread spread(std::span<const double> values);

/// The three figures of a tf_cnn_benchmarks row, from all step times so far.
struct StepSpeed {
  double mean = 0;  ///< img/s: images over the mean time, which is the harmonic mean of speeds
  double uncertainty =
      0;              ///< population standard deviation of the speeds over the root of their number
  double jitter = 0;  ///< 1.4826 times the median absolute deviation of the speeds
};
/// `images` per step of this process; `seconds` one for each step; `ewma` in (0, 1] weighs the
/// newest step time so, and earlier ones by (1 - ewma)^age; 0: plain mean.
StepSpeed step_speed(double images, std::span<const double> seconds, double ewma);

/// What input costs, from the rate without it and the rate with it, for steps of `images` images.
struct InputCost {
  double percent = 0;         ///< 100 (1 - with / without)
  double ms_per_step = 0;     ///< how much longer a step takes
  double img_per_s_lost = 0;  ///< without - with
};
InputCost input_cost(double without_img_per_s, double with_img_per_s, double images_per_step);

/// Does what was ready before the window distort it? See kMinReserves and kMaxReserveFall.
bool is_draining(double reserve_start, double reserve_end, double consumed);

/// A window shorter than this many reserves says little about the feeder.
inline constexpr double kMinReserves = 20;
/// Nor does one over which the reserve fell by more than this share of what was consumed.
inline constexpr double kMaxReserveFall = 0.01;

}  // namespace penstock
