// SPDX-License-Identifier: Apache-2.0
// Prints the exact console output of tf_cnn_benchmarks, so that its parsers also read Penstock's:
// header, step table and total. Losses are printed as 0.000 if the device computes none.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "bench/config/training_rules.h"
#include "bench/run/observe/run_listener.h"
#include "bench/run/runner.h"

namespace penstock::report {

/// The content of the header.
struct StepTableHeader {
  RunConfig config;  ///< resolved
  bool synthetic = true;
  std::string dataset = "imagenet";     ///< or "cifar10"
  bool servers = false;                 ///< parameter servers are separate processes
  std::string_view horovod_on = "cpu";  ///< what adds gradients under Horovod: cpu or gpu
  double examples_per_epoch = kImageNetImages;
};
/// Finds the facts of a run; `config` is resolved.
StepTableHeader header_of(const RunConfig& config, const Runner::Components& components,
                          double examples_per_epoch);
std::string format_header(const StepTableHeader& header);
/// The header of a run with a loader of the user's, whose reader does not know tf_cnn_benchmarks.
std::string format_loader_header(const RunConfig& config);

/// The heading of the step table.
std::string format_title(const RunConfig& config);

/// One row of the table. `step_seconds` has all steps so far; the row begins with `step.index` + 1.
std::string format_row(const StepReport& step, double images,
                       const std::vector<double>& step_seconds, const RunConfig& config);
/// The end of the table: the total, or "Done with training" if the run evaluates while it trains.
/// The line of the total always has the form of tf_cnn_benchmarks. If the run did not end well, or
/// batches made before the window decided the total, a line that begins with '#' follows: status
/// and reason.
std::string format_end(const RunResult& result);

/// Prints rows to `out` during a run; if `plain`, without what tf_cnn_benchmarks says of a graph.
/// If the window takes more steps than requested, also says so on standard error, with the
/// remaining time estimated from its first steps.
class StepTable final : public RunListener {
 public:
  StepTable(const RunConfig& config, std::FILE* out, bool plain = false);
  void warm_up_begins() override;
  void window_extended(std::int64_t steps) override { extended_steps_ = steps; }
  void window_begins() override;
  void step(const StepReport& step) override;
  void evaluation_begins(std::int64_t training_step) override;
  void evaluation_step(std::size_t index, double images, double seconds) override;
  void evaluated(const EvaluationReport& report) override;

 private:
  void announce_extension();

  const RunConfig config_;
  double images_;  ///< of a step; where steps differ, the mean of those shown so far
  std::FILE* const out_;
  const bool plain_;
  std::vector<double> step_seconds_;
  std::int64_t extended_steps_ = 0;                       // 0: as requested
  double evaluated_images_ = 0, evaluation_seconds_ = 0;  // since the previous line
};

}  // namespace penstock::report
