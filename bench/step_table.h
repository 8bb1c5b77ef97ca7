// SPDX-License-Identifier: Apache-2.0
// The console output of tf_cnn_benchmarks, to the letter, so that its parsers work on ours: header,
// step table and total. Losses of devices that compute none are printed as 0.000.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "bench/runner.h"

namespace penstock {

/// What the header says.
struct StepTableHeader {
  RunConfig config;  ///< resolved
  bool synthetic = true;
  bool exchanges = true;  ///< the update reduces gradients: print the AllReduce line
};
std::string format_header(const StepTableHeader& header);

/// `step` counts from 1.
std::string format_row(std::size_t step, double images, const std::vector<double>& step_seconds,
                       double ewma, double loss);
std::string format_total(double img_per_s);

/// Prints rows to `out` while a run goes on.
class StepTable final : public RunListener {
 public:
  StepTable(const RunConfig& config, std::FILE* out);
  void warm_up_begins() override;
  void window_begins() override;
  void step(std::size_t index, double seconds, double loss) override;

 private:
  const double images_;
  const std::size_t display_every_;
  const double ewma_;
  std::FILE* const out_;
  std::vector<double> step_seconds_;
};

}  // namespace penstock
