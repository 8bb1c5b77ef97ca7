// SPDX-License-Identifier: Apache-2.0
// report.html: the page that one would send on.
#include "bench/pages/sweep_page.h"
#include "bench/report.h"

namespace penstock {
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

}  // namespace penstock
