// SPDX-License-Identifier: Apache-2.0
// How the times of steps scatter: random factors of mean 1 and of a stated coefficient of
// variation (standard deviation / mean).
//
//   uniform      in 1 +- sqrt(3) cv
//   normal       1 + cv z for z of the standard normal distribution (Box and Muller 1958), drawn
//                again outside (0, 2). That is symmetric about 1, so the mean stays 1; the
//                deviation is at most 0.6 % smaller than cv says
//   lognormal    exp(s z - s^2 / 2) with s^2 = ln(1 + cv^2)
//   gamma        of shape 1 / cv^2 (Marsaglia and Tsang 2000)
//   exponential  -ln(u): cv is 1
//
// Each has the mean 1 in expectation, so that a device's rate does not depend on its distribution.
// The arithmetic is our own: what std::normal_distribution and its kind make of a generator's bits
// is left to each C++ library, and runs have to repeat. What is left are the last bits of the
// mathematical library's log, cos and exp.
#pragma once

#include <cstdint>
#include <string>

#include "dataflow/random.h"

namespace penstock::emulated {

enum class Distribution : std::uint8_t { constant, uniform, normal, lognormal, gamma, exponential };

struct Jitter {
  Distribution distribution = Distribution::constant;
  double cv = 0;

  /// Positive, but for the limits of what a double can tell from 0. Takes as many draws as needed.
  double factor(Random random) const;
};

/// Throws ConfigError for unknown names, and for a cv that the distribution cannot have;
/// `cv_given`: the user typed it.
Jitter parse_jitter(const std::string& distribution, double cv, bool cv_given);

}  // namespace penstock::emulated
