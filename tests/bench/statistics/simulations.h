// SPDX-License-Identifier: Apache-2.0
// Simulated measurements with a known truth: how often intervals cover it, and how often verdicts
// are false. Used by a fast test and by a program that runs more simulations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dataflow/random.h"

namespace penstock {

/// Standard normal numbers by the method of Box and Muller (1958).
class Normal {
 public:
  Normal(std::uint64_t seed, std::uint64_t stream) : random_(seed, stream) {}
  double next();

 private:
  Random random_;
};

/// A stationary AR(1) series with the given standard deviation:
/// x(k) = mean + phi (x(k - 1) - mean) + noise.
std::vector<double> make_ar1(std::size_t steps, double phi, double mean, double deviation,
                             Normal normal);

/// One line of the table.
struct Simulation {
  std::string figure;                ///< "mean_of_series"
  std::string conditions;            ///< "AR(1), phi 0.9, 400 steps"
  double at_least = 0, at_most = 0;  ///< per cent
  /// For simulation number k: was the truth covered, or was there a verdict?
  std::function<bool(std::size_t k)> hit;
};
std::vector<Simulation> coverage_simulations();     ///< nominal 95 % intervals
std::vector<Simulation> false_alarm_simulations();  ///< verdicts if nothing differs
std::vector<Simulation> power_simulations();        ///< verdicts if something differs

/// Hits in simulations 0 to count - 1, in per cent.
double percent_of_hits(const Simulation& simulation, std::size_t count);

}  // namespace penstock
