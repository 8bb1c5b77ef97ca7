// SPDX-License-Identifier: Apache-2.0
#include "bench/report/run_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "bench/document/document.h"
#include "bench/record/report_text.h"
#include "bench/record/step_parts.h"
#include "dataflow/entry.h"

namespace penstock::report {
namespace {

/// The types that take most of a step.
document::Table operations_of(const RunResult& result) {
  constexpr std::size_t kShown = 8;
  document::Table table{{{"time by operation"}, {"ms/step", true}, {"%", true}, {"calls", true}},
                        {}};
  for (std::size_t i = 0; i < std::min(kShown, result.operations.size()); ++i) {
    const OperationUse& use = result.operations[i];
    table.rows.push_back({use.name, format_fixed(use.ms_per_step, 3), format_fixed(use.percent, 1),
                          format_fixed(use.calls_per_step, 1)});
  }
  return table;
}

}  // namespace

std::string run_summary(const RunResult& result) {
  std::ostringstream text;
  for (const document::Table& table : {parts_table(result.parts), operations_of(result)}) {
    if (!table.rows.empty()) document::write_text(table, text);
  }
  std::vector<std::string> peaks;
  for (const MemoryUse& use : result.memory) {
    peaks.push_back(fmt::format("{} {:.0f} MiB", use.name, use.peak_mib));
  }
  if (!peaks.empty()) text << "penstock: memory at most: " << join(peaks) << "\n";
  return text.str();
}

}  // namespace penstock::report
