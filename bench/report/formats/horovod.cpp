// SPDX-License-Identifier: Apache-2.0
// The output of Horovod's synthetic benchmarks: iterations of ten steps, their mean and spread. Its
// totals are those of one process times their number, ours of all devices: the same where they keep
// step.
#include <fmt/format.h>

#include "bench/foreign_report.h"
#include "bench/report.h"

namespace penstock {
namespace {

void print(const RunResult& result, std::ostream& out) {
  const RunConfig& config = result.config;
  const std::string_view device = device_word(config);
  out << fmt::format("Model: {}\nBatch size: {}\nNumber of {}s: {}\n", config.model,
                     config.batch_size, device, config.num_gpus)
      << "Running warmup...\nRunning benchmark...\n";
  const IterationSummary summary = summarise_iterations(result);
  for (std::size_t i = 0; i < summary.rates.size(); ++i) {
    out << fmt::format("Iter #{}: {:.1f} img/sec per {}\n", i, summary.rates[i], device);
  }
  out << fmt::format("Img/sec per {}: {:.1f} +-{:.1f}\n", device, summary.mean, summary.reach)
      << fmt::format("Total img/sec on {} {}(s): {:.1f} +-{:.1f}\n", config.num_gpus, device,
                     config.num_gpus * summary.mean, config.num_gpus * summary.reach);
}

void write(const SweepResult& sweep, const ReportStyle&, std::ostream& out) {
  print_runs(sweep, true, out, print);
}

}  // namespace

extern constinit const ReportEntry horovod_report{
    .name = "horovod",
    .summary = "each run as Horovod's synthetic benchmarks print it",
    .write = write,
};

}  // namespace penstock
