// SPDX-License-Identifier: Apache-2.0
#include "bench/report/run_summary.h"

#include <fmt/format.h>

#include <sstream>
#include <vector>

#include "bench/document/document.h"
#include "bench/record/step_parts.h"
#include "dataflow/entry.h"

namespace penstock::report {
std::string run_summary(const RunResult& result) {
  std::ostringstream text;
  const document::Table parts = parts_table(result.parts);
  if (!parts.rows.empty()) document::write_text(parts, text);
  std::vector<std::string> peaks;
  for (const MemoryUse& use : result.memory) {
    peaks.push_back(fmt::format("{} {:.0f} MiB", use.name, use.peak_mib));
  }
  if (!peaks.empty()) text << "penstock: memory at most: " << join(peaks) << "\n";
  return text.str();
}

}  // namespace penstock::report
