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

/// The batches that a window consumed, and those that lay ready for it at its ends.
struct ReserveUse {
  double consumed = 0;
  double start = 0, end = 0;  ///< counted: in the rings, with the devices at rest
  double outside = 0;  ///< at most these may have lain ready elsewhere at the begin; not counted
  double error = 1;    ///< of a count: batches that were half made
};
/// The largest share of the consumed batches that can have been made before the window: by how much
/// the counted reserve fell, with the error of counting that, and all that lay elsewhere. 0 to 1.
double most_hidden_share(const ReserveUse& use);
/// Did batches of before the window decide its rate? The counted reserve fell by more than counting
/// errs by and kMaxReserveFall of what was consumed; or those that were not counted may be more
/// than kMostHidden of it.
bool is_draining(const ReserveUse& use);
/// Does the window bound that share as --extend-window wants it? See kMinReserves.
bool is_long_enough(const ReserveUse& use);

/// Windows are extended to this many reserves, which bounds the share to about 5 %.
inline constexpr double kMinReserves = 20;
inline constexpr double kMaxReserveFall = 0.01;
inline constexpr double kMostHidden = 0.5;

}  // namespace penstock
