// SPDX-License-Identifier: Apache-2.0
// The output of Horovod's synthetic benchmarks: iterations of ten steps, with mean and spread.
// The totals are, as Horovod's, the rate of one device times the number of devices of all
// processes.
#include <fmt/format.h>

#include "bench/report/foreign_report.h"
#include "bench/report/report.h"

namespace penstock::report {
namespace {

void print(const RunResult& result, std::ostream& out) {
  const RunConfig& config = result.config;
  const std::string_view device = device_word(config);
  const std::int64_t devices = all_devices(config);
  out << fmt::format("Model: {}\nBatch size: {}\nNumber of {}s: {}\n", config.model,
                     config.batch_size, device, devices)
      << "Running warmup...\nRunning benchmark...\n";
  const IterationSummary summary = summarise_iterations(result);
  for (std::size_t i = 0; i < summary.rates.size(); ++i) {
    out << fmt::format("Iter #{}: {:.1f} img/sec per {}\n", i, summary.rates[i], device);
  }
  out << fmt::format("Img/sec per {}: {:.1f} +-{:.1f}\n", device, summary.mean, summary.reach)
      << fmt::format("Total img/sec on {} {}(s): {:.1f} +-{:.1f}\n", devices, device,
                     static_cast<double>(devices) * summary.mean,
                     static_cast<double>(devices) * summary.reach);
}

}  // namespace

extern constinit const ReportEntry horovod_report{
    .name = "horovod",
    .summary = "each run as Horovod's synthetic benchmarks print it",
    .write = [](const SweepResult& sweep, const ReportStyle&,
                std::ostream& out) { print_runs(sweep, true, out, print); },
};

}  // namespace penstock::report
