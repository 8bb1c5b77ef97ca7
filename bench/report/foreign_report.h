// SPDX-License-Identifier: Apache-2.0
// What reports in the words of other benchmarks have in common: they know one run at a time.
#pragma once

#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "bench/sweep_result.h"

namespace penstock {

/// Calls `print(result, out)` for every repetition that took steps. A line that begins with '#'
/// says which it is where there are several, or where `always`; others say why a row has none.
void print_runs(const SweepResult& sweep, bool always, std::ostream& out,
                void (*print)(const RunResult&, std::ostream&));

/// img/s of all devices over each `steps` consecutive steps of the window. Steps beyond the last
/// whole group are left out; fewer steps than one group are a group.
std::vector<double> group_rates(const RunResult& result, std::size_t steps);

/// As those benchmarks call a device: CPU where it is made of the host's cores, else GPU.
std::string_view device_word(const RunConfig& config);

/// "name" of "name:options".
std::string_view plain_name(std::string_view component);

/// Horovod's and KungFu's summary of iterations of ten steps: mean rate of a device, and 1.96 times
/// the population standard deviation over iterations (a spread, not an interval of the mean).
struct IterationSummary {
  std::vector<double> rates;  ///< per device, one for each iteration
  double mean = 0, reach = 0;
};
IterationSummary summarise_iterations(const RunResult& result);

}  // namespace penstock
