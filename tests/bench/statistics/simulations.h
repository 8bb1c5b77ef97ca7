// SPDX-License-Identifier: Apache-2.0
// Simulated measurements whose truth is known: how often do intervals cover it, and how often do
// verdicts cry wolf? One table serves a test that is fast and a program that counts for longer.
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

/// A stationary AR(1) series: x(k) = mean + phi (x(k - 1) - mean) + noise, of the given standard
/// deviation.
std::vector<double> make_ar1(std::size_t steps, double phi, double mean, double deviation,
                             Normal normal);

/// One line of the table.
struct Simulation {
  std::string figure;                ///< "mean_of_series"
  std::string conditions;            ///< "AR(1), phi 0.9, 400 steps"
  double at_least = 0, at_most = 0;  ///< per cent
  /// Of simulation number k: was the truth covered, or was there a verdict?
  std::function<bool(std::size_t k)> hit;
};
std::vector<Simulation> coverage_simulations();     ///< nominal 95 % intervals
std::vector<Simulation> false_alarm_simulations();  ///< verdicts where nothing differs
std::vector<Simulation> power_simulations();        ///< verdicts where something does

/// Hits in simulations 0 to count - 1, in per cent.
double percent_of_hits(const Simulation& simulation, std::size_t count);

}  // namespace penstock
