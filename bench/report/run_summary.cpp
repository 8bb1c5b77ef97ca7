// SPDX-License-Identifier: Apache-2.0
#include "bench/report/run_summary.h"

#include <sstream>

#include "bench/document/document.h"
#include "bench/record/step_parts.h"

namespace penstock::report {
std::string run_summary(const RunResult& result) {
  std::ostringstream text;
  const document::Table parts = parts_table(result.parts);
  if (!parts.rows.empty()) document::write_text(parts, text);
  return text.str();
}

}  // namespace penstock::report
