// SPDX-License-Identifier: Apache-2.0
// A report in one file: one line per row of a sweep, to paste into a message.
//   penstock_custom report out/batches --format rates
#include "bench/record/report_text.h"
#include "bench/report/report.h"

namespace penstock {
namespace {

void write(const SweepResult& sweep, const document::TerminalStyle&, std::ostream& out) {
  for (const Row& row : sweep.rows) {
    out << label_of(sweep, row) << ": ";
    if (row.img_per_s) {
      out << format_spread(*row.img_per_s, 0) << " img/s\n";
    } else {
      out << to_string(row.status) << "\n";
    }
  }
}

}  // namespace

extern constinit const report::ReportEntry rates_report{
    .name = "rates",
    .summary = "img/s of each row, a line each",
    .write = write,
};

}  // namespace penstock
