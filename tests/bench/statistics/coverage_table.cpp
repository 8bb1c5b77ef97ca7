// SPDX-License-Identifier: Apache-2.0
// Prints how often intervals cover the truth and how often verdicts are false, as a Markdown table:
//   coverage_table [SIMULATIONS]
#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "tests/bench/statistics/simulations.h"

int main(int count, char** words) {
  std::size_t simulations = 10000;
  const std::string_view word = count > 1 ? words[1] : "10000";
  const auto [end, error] = std::from_chars(word.begin(), word.end(), simulations);
  if (error != std::errc() || end != word.end() || simulations == 0) {
    fmt::print(stderr,
               "cannot count simulations: \"{}\" is not a whole number above 0; give how many, for "
               "example 10000\n",
               word);
    return 2;
  }
  fmt::print("| figure | conditions | hits % | wanted % |\n|---|---|---|---|\n");
  for (const auto& table : {penstock::coverage_simulations(), penstock::false_alarm_simulations(),
                            penstock::power_simulations()}) {
    for (const penstock::Simulation& simulation : table) {
      fmt::print("| {} | {} | {:.1f} | {:.0f} to {:.0f} |\n", simulation.figure,
                 simulation.conditions, penstock::percent_of_hits(simulation, simulations),
                 simulation.at_least, simulation.at_most);
    }
  }
  return 0;
}
