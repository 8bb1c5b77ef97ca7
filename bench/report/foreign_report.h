// SPDX-License-Identifier: Apache-2.0
// Common parts of reports in the formats of other benchmarks, which handle one run at a time.
#pragma once

#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "bench/record/sweep_result.h"

namespace penstock::report {

/// Calls `print(result, out)` for every repetition with steps. If there are several, or if
/// `always`, a line that begins with '#' names each. For a row without such a repetition, a '#'
/// line gives the reason.
void print_runs(const SweepResult& sweep, bool always, std::ostream& out,
                void (*print)(const RunResult&, std::ostream&));

/// img/s of all devices for each group of `steps` consecutive steps of the window. An incomplete
/// last group is left out. If there are fewer than `steps` steps, they form one group.
std::vector<double> group_rates(const RunResult& result, std::size_t steps);

/// The device's name in those benchmarks: CPU if it is made of host cores, else GPU.
std::string_view device_word(const RunConfig& config);

/// "name" of "name:options".
std::string_view plain_name(std::string_view component);

/// The summary of Horovod and KungFu over iterations of ten steps: mean rate of a device, and 1.96
/// times the population standard deviation over iterations (a spread, not an interval of the mean).
struct IterationSummary {
  std::vector<double> rates;  ///< per device, one per iteration
  double mean = 0, reach = 0;
};
IterationSummary summarise_iterations(const RunResult& result);

}  // namespace penstock::report
