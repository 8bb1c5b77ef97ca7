// SPDX-License-Identifier: Apache-2.0
// The time of each step of an emulated device. It is a function of the seed, the rank, the step and
// the number of images, so that runs repeat with any thread timing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dataflow/clock.h"
#include "dataflow/random.h"

namespace penstock::emulated {

/// Random variation of step times: factors with mean 1 and a given coefficient of variation
/// (standard deviation / mean).
///
///   uniform      in 1 +- sqrt(3) cv
///   normal       1 + cv z for z of the standard normal distribution (Box and Muller 1958), drawn
///                again outside (0, 2). This interval is symmetric about 1, so the mean stays 1;
///                the deviation is at most 0.6 % smaller than cv
///   lognormal    exp(s z - s^2 / 2) with s^2 = ln(1 + cv^2)
///   gamma        of shape 1 / cv^2 (Marsaglia and Tsang 2000)
///   exponential  -ln(u): cv is 1
///
/// Each factor has expected value 1, so the rate of a device does not depend on its distribution.
/// The arithmetic is Penstock's own, because runs must repeat and each C++ library implements
/// std::normal_distribution and similar classes differently. Only the last bits of the mathematical
/// library's log, cos and exp may still differ.
enum class Distribution : std::uint8_t { constant, uniform, normal, lognormal, gamma, exponential };

struct Jitter {
  Distribution distribution = Distribution::constant;
  double cv = 0;

  /// Positive, unless it underflows to 0. Takes as many random draws as needed.
  double factor(Random random) const;
};

/// Throws ConfigError if the name is unknown or the distribution cannot have this cv. `cv_given`:
/// the user set it.
Jitter parse_jitter(const std::string& distribution, double cv, bool cv_given);

struct Pace {
  double seconds_per_image = 0;  ///< the mean
  Jitter jitter{};
  /// Recorded seconds per image, one entry per step. The list repeats after its end and is equal on
  /// every rank. Empty: the mean and its jitter.
  std::vector<double> recorded{};
  Nanoseconds exchange{};  ///< added to every step

  /// The time of step `step`, from 0, with `images` images, on the device of rank `rank`.
  Nanoseconds step_time(std::uint64_t seed, std::uint64_t rank, std::uint64_t step,
                        std::int32_t images) const;
  /// The mean of step_time.
  Nanoseconds mean_step_time(std::int32_t images) const;
};

}  // namespace penstock::emulated
