// SPDX-License-Identifier: Apache-2.0
// Saved results: every report can be made of them, or they are refused.
#include "bench/record/saved_results.h"

#include <sstream>

#include "bench/report/report.h"
#include "tests/fuzz/target.h"

namespace penstock::fuzz {

std::size_t saved_results(std::span<const std::byte> input) {
  const SweepResult sweep = parse_saved_results(as_text(input), "results.json");
  for (const report::ReportEntry* report : report::report_table().entries) {
    std::ostringstream sink;
    report->write(sweep, {}, sink);
  }
  return sweep.rows.size();
}

}  // namespace penstock::fuzz
