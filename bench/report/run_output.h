// SPDX-License-Identifier: Apache-2.0
// `penstock run`: one run, shown as tf_cnn_benchmarks' table, as JSON or as a report.
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "bench/config/flags.h"
#include "bench/run/prepared_run.h"

namespace penstock::report {

struct RunOutput {
  bool json = false;
  bool verbose = false;  ///< show every resolved value
  bool plain = false;    ///< the header of a loader of the user's, not of tf_cnn_benchmarks
  std::string format;    ///< a report's name; empty: the table
};

std::vector<Flag> output_flags(RunOutput& output, RunOptions& options);
/// Throws ConfigError if the flags contradict each other or --out cannot be written.
void check_output(const RunOutput& output, const RunOptions& options);

/// Runs `config`, saves the result to --out and prints it. A rank other than 0 prints only errors.
/// Returns the exit code.
int run_and_show(const RunConfig& config, const RunOutput& output, RunOptions options,
                 const RunPeers& peers, std::stop_token stop);

}  // namespace penstock::report
