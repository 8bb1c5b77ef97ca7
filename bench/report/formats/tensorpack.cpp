// SPDX-License-Identifier: Apache-2.0
// The log of a tensorpack trainer, without its clock and source lines: epochs of fifty steps, the
// throughput of each in samples per second, and a moving average of the queue size. Tensorpack's
// first epoch is warm-up by convention; here, warm-up steps are separate and not shown.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "bench/report/foreign_report.h"
#include "bench/report/report.h"

namespace penstock::report {
namespace {

constexpr std::size_t kStepsPerEpoch = 50;

/// The moving average, with decay 0.5, of the host ring's fill level up to a share of the window.
std::optional<double> queue_size(const RunResult& result, double share) {
  if (result.queues.empty() || result.queues.front().filled.empty()) return std::nullopt;
  const std::vector<double>& filled = result.queues.front().filled;
  const auto parts = static_cast<std::size_t>(share * static_cast<double>(filled.size()));
  double average = filled.front();
  for (std::size_t i = 1; i < std::min(parts, filled.size()); ++i)
    average = 0.5 * average + 0.5 * filled[i];
  return average;
}

void print(const RunResult& result, std::ostream& out) {
  const std::vector<double> rates = group_rates(result, kStepsPerEpoch);
  const std::size_t steps = std::min(kStepsPerEpoch, result.step_ms.size());
  for (std::size_t epoch = 1; epoch <= rates.size(); ++epoch) {
    const double rate = rates[epoch - 1];
    const double seconds =
        static_cast<double>(steps) * static_cast<double>(result.images_per_step) / rate;
    out << fmt::format("Start Epoch {} ...\n", epoch)
        << fmt::format("Epoch {} (global_step {}) finished, time:{:.3g} seconds.\n", epoch,
                       epoch * steps, seconds);
    const double share = static_cast<double>(epoch) / static_cast<double>(rates.size());
    if (const std::optional<double> size = queue_size(result, share)) {
      out << fmt::format("QueueInput/queue_size: {:.5g}\n", *size);
    }
    out << fmt::format("Throughput (samples/sec): {:.5g}\n", rate);
  }
  out << "Training has finished!\n";
}

}  // namespace

extern constinit const ReportEntry tensorpack_report{
    .name = "tensorpack",
    .summary = "each run as a tensorpack trainer logs it",
    .write = [](const SweepResult& sweep, const ReportStyle&,
                std::ostream& out) { print_runs(sweep, true, out, print); },
};

}  // namespace penstock::report
