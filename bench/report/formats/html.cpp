// SPDX-License-Identifier: Apache-2.0
// report.html: the page for readers.
#include "bench/report/pages/sweep_page.h"
#include "bench/report/report.h"

namespace penstock::report {
namespace {

void write(const SweepResult& sweep, const ReportStyle&, std::ostream& out) {
  write_sweep_page(sweep, out);
}

}  // namespace

extern constinit const ReportEntry html_report{
    .name = "html",
    .summary = "one self-contained HTML page",
    .file = "report.html",
    .write = write,
};

}  // namespace penstock::report
