// SPDX-License-Identifier: Apache-2.0
// Computes the figures of results. Pure functions of numbers, without clocks.
#pragma once

#include <span>
#include <vector>

namespace penstock {

/// The middle value; for even counts the mean of the two middle values; 0 for no values.
double median(std::span<const double> values);

struct Spread {
  double median = 0, low = 0, high = 0;
};
Spread spread(std::span<const double> values);

/// The three figures of a tf_cnn_benchmarks row, computed from all step times so far.
struct StepSpeed {
  double mean = 0;  ///< img/s: images over the mean time, which is the harmonic mean of speeds
  double uncertainty =
      0;              ///< population standard deviation of the speeds over the root of their number
  double jitter = 0;  ///< 1.4826 times the median absolute deviation of the speeds
};
/// `images` is the number of images per step of this process; `seconds` has one time per step.
/// `ewma` in (0, 1] is the weight of the newest step time; earlier ones weigh (1 - ewma)^age times
/// as much; 0: plain mean.
StepSpeed step_speed(double images, std::span<const double> seconds, double ewma);

/// The cost of input, from the rates without and with input.
struct InputCost {
  double percent = 0;         ///< 100 (1 - with / without)
  double ms_per_step = 0;     ///< how much longer a step takes
  double img_per_s_lost = 0;  ///< without - with
};
InputCost input_cost(double without_img_per_s, double with_img_per_s, double images_per_step);

/// The batches that a window consumed, and the reserve of ready batches at its ends.
struct ReserveUse {
  double consumed = 0;
  double start = 0, end = 0;  ///< counted in the rings while the devices are idle
  double outside = 0;         ///< upper bound of uncounted batches ready elsewhere at the start
  double error = 1;           ///< of a count, in batches: half-made ones
};
/// Upper bound for the share of consumed batches that were made before the window: the fall of the
/// counted reserve, plus the error of counting, plus all batches outside. 0 to 1.
double most_hidden_share(const ReserveUse& use);
/// True if batches made before the window decided its rate. Either the counted reserve fell by more
/// than the counting error and by more than kMaxReserveFall of the consumed batches, or the
/// uncounted batches may exceed kMostHidden of the consumed ones.
bool is_draining(const ReserveUse& use);
/// True if the window is long enough for --extend-window: kMinReserves reserves, and not draining.
bool is_long_enough(const ReserveUse& use);

/// Windows are extended to this many reserves. This bounds the share to about 5 %.
inline constexpr double kMinReserves = 20;
inline constexpr double kMaxReserveFall = 0.01;
inline constexpr double kMostHidden = 0.5;

}  // namespace penstock
