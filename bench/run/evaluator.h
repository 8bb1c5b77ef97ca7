// SPDX-License-Identifier: Apache-2.0
// Accuracy on the evaluation set: every image once and in order, with the transform that leaves
// nothing to chance, through a ring and a feeder of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "bench/run_parts.h"
#include "bench/runner.h"
#include "bench/step_reporter.h"

namespace penstock {

class Evaluator {
 public:
  /// Opens the evaluation set. `parts` outlive the evaluator. Throws ConfigError where there is no
  /// such set, or the feeder cannot be had twice.
  explicit Evaluator(RunParts& parts);

  /// Evaluates rank 0's weights as they are after `step` steps, whose device is idle. Blocks; the
  /// calling thread drives the device. Rethrows the feeder's failure.
  EvaluationReport run(std::int64_t step, StepReporter& reporter, std::stop_token stop);

  std::int64_t steps() const noexcept { return static_cast<std::int64_t>(steps_); }
  /// Images in the set, or in the steps where it has no end.
  double examples() const noexcept { return examples_; }
  /// What is to be known of its images, each sentence once.
  std::vector<std::string> notes() const;

 private:
  class Pass;
  std::unique_ptr<Feeder> make_feeder();

  RunParts& parts_;
  Probe probe_{false};  // of its feeders: what they count is none of the run's
  BatchSpec spec_;
  std::unique_ptr<Executable> own_executable_;  // if its batches differ from those of training
  std::unique_ptr<Feeder> next_feeder_;         // of the pass to come
  std::size_t steps_ = 0;
  double examples_ = 0;
};

/// The folder that a run of `config` evaluates on. Throws ConfigError where none can be told.
std::string evaluation_folder(const RunConfig& config);

}  // namespace penstock
