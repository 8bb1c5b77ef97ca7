// SPDX-License-Identifier: Apache-2.0
// Measures accuracy on the evaluation set: each image once, in order, without random transforms,
// through a separate ring and feeder.
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "bench/run/run_parts.h"
#include "bench/run/runner.h"
#include "bench/run/step_reporter.h"

namespace penstock {

class Evaluator {
 public:
  /// Opens the evaluation set. `parts` must outlive the evaluator. Throws ConfigError if there is
  /// no evaluation set, or if the feeder does not support a second instance.
  explicit Evaluator(RunParts& parts);

  /// Evaluates rank 0's weights after `step` training steps. The device must be idle. Blocks; the
  /// calling thread drives the device. Rethrows a failure of the feeder.
  EvaluationReport run(std::int64_t step, StepReporter& reporter, std::stop_token stop);

  std::int64_t steps() const noexcept { return static_cast<std::int64_t>(steps_); }
  /// Images in the set; if it has no end, images in the steps.
  double examples() const noexcept { return examples_; }
  /// Remarks on the images, without duplicates.
  std::vector<std::string> notes() const;

 private:
  class Pass;
  std::unique_ptr<Feeder> make_feeder();

  RunParts& parts_;
  Probe probe_{false};  // separate, so that the run does not count these feeders
  BatchSpec spec_;
  std::unique_ptr<Executable> own_executable_;  // only if the batch size differs from training
  std::unique_ptr<Feeder> next_feeder_;         // for the next pass
  std::size_t steps_ = 0;
  double examples_ = 0;
};

/// The folder of the evaluation set. Throws ConfigError if it cannot be determined.
std::string evaluation_folder(const RunConfig& config);

}  // namespace penstock
