// SPDX-License-Identifier: Apache-2.0
// The console output of tf_cnn_benchmarks, to the letter, so that its parsers work on ours: header,
// step table and total. Losses of devices that compute none are printed as 0.000.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "bench/runner.h"
#include "bench/training_rules.h"

namespace penstock {

/// What the header says.
struct StepTableHeader {
  RunConfig config;  ///< resolved
  bool synthetic = true;
  std::string dataset = "imagenet";  ///< or "cifar10"
  bool servers = false;              ///< parameter servers are processes
  double examples_per_epoch = kImageNetImages;
};
std::string format_header(const StepTableHeader& header);

/// The line above the rows.
std::string format_title(const RunConfig& config);

/// One line of the table: `step_seconds` are all steps so far; `step.index` + 1 stands in front.
std::string format_row(const StepReport& step, double images,
                       const std::vector<double>& step_seconds, const RunConfig& config);
/// Behind the rate stands whether batches of before the window decided it.
std::string format_total(const RunResult& result);

/// Does a run of `config` evaluate while it trains? Then no total is printed.
bool evaluates_while_training(const RunConfig& config);

/// Prints rows to `out` while a run goes on.
class StepTable final : public RunListener {
 public:
  StepTable(const RunConfig& config, std::FILE* out);
  void warm_up_begins() override;
  void window_begins() override;
  void step(const StepReport& step) override;
  void evaluation_begins(std::int64_t training_step) override;
  void evaluation_step(std::size_t index, double images, double seconds) override;
  void evaluated(const EvaluationReport& report) override;

 private:
  const RunConfig config_;
  const double images_;
  std::FILE* const out_;
  std::vector<double> step_seconds_;
  double evaluated_images_ = 0, evaluation_seconds_ = 0;  // since the line before
};

}  // namespace penstock
