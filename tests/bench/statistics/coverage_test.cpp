// SPDX-License-Identifier: Apache-2.0
// A small number of the simulations of simulations.h, to be fast. Seeds are fixed, so the outcome
// never varies.
#include <gtest/gtest.h>

#include "tests/bench/statistics/simulations.h"

namespace penstock {
namespace {

void expect_within_bounds(const std::vector<Simulation>& simulations, std::size_t count) {
  for (const Simulation& simulation : simulations) {
    SCOPED_TRACE(simulation.figure + ": " + simulation.conditions);
    const double percent = percent_of_hits(simulation, count);
    EXPECT_GE(percent, simulation.at_least);
    EXPECT_LE(percent, simulation.at_most);
  }
}

TEST(Coverage, IntervalsCoverTheTruthAboutAsOftenAsTheySay) {
  expect_within_bounds(coverage_simulations(), 300);
}

// A false alarm rate of 5 % exceeds 18 of 200 once in 200 times.
TEST(Coverage, VerdictsOfEqualsAreRarelyFalse) {
  expect_within_bounds(false_alarm_simulations(), 200);
}

TEST(Coverage, TheDetectableEffectIsDetectedAsOftenAsItSays) {
  expect_within_bounds(power_simulations(), 1000);
}

}  // namespace
}  // namespace penstock
