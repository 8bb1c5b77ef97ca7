// SPDX-License-Identifier: Apache-2.0
// The console output of tf_cnn_benchmarks from saved steps, as `penstock run` prints it during a
// run. Accuracies of single steps are not saved, so their columns are left out.
#include <fmt/format.h>

#include <vector>

#include "bench/report/foreign_report.h"
#include "bench/report/report.h"
#include "bench/report/step_table.h"
#include "dataflow/entry.h"
#include "feeders/feeder.h"
#include "trainer/update_strategy.h"

namespace penstock::report {
namespace {

StepTableHeader header_of(const RunResult& result) {
  const FeederEntry* const feeder =
      match_entry(feeder_table(), plain_name(result.config.fake_location));
  StepTableHeader header;
  header.config = result.config;
  header.synthetic = feeder == nullptr || (!feeder->reads_files && !feeder->needs_producer);
  if (result.examples_per_epoch > 0) header.examples_per_epoch = result.examples_per_epoch;
  return header;
}

void print(const RunResult& result, std::ostream& out) {
  RunConfig config = result.config;
  config.print_training_accuracy = config.forward_only = false;
  out << format_header(header_of(result)) << "Generating training model\nInitializing graph\n"
      << "Running warm up\nDone warm up\n"
      << format_title(config);
  std::vector<double> seconds;
  for (std::size_t i = 0; i < result.step_ms.size(); ++i) {
    seconds.push_back(result.step_ms[i] / 1e3);
    if (i != 0 && (i + 1) % static_cast<std::size_t>(config.display_every) != 0) continue;
    StepReport step;
    step.index = i;
    if (i < result.losses.size()) step.loss = result.losses[i];
    out << format_row(step, static_cast<double>(result.images_per_step), seconds, config);
  }
  out << (evaluates_while_training(config) ? "Done with training\n" : format_total(result));
}

}  // namespace

extern constinit const ReportEntry tf_cnn_benchmarks_report{
    .name = "tf_cnn_benchmarks",
    .summary = "each run as tf_cnn_benchmarks prints it",
    .write = [](const SweepResult& sweep, const ReportStyle&,
                std::ostream& out) { print_runs(sweep, false, out, print); },
};

}  // namespace penstock::report
