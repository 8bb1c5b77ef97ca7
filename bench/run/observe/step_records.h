// SPDX-License-Identifier: Apache-2.0
// Saves the steps of a run to a file while it measures, so that they survive a crash. The file
// (bench/record/saved_steps.h) is written at least once a second. The result of a complete run
// replaces it.
//
// Thread-safety: listener calls from one thread, so_far from any thread.
#pragma once

#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bench/run/observe/progress_meter.h"
#include "bench/run/observe/run_listener.h"
#include "dataflow/machine/file_descriptor.h"

namespace penstock {

class StepRecords final : public RunListener {
 public:
  /// `config` is resolved. Empty path: no file. Throws ConfigError if the file cannot be created.
  /// `clock` must outlive the object.
  StepRecords(std::filesystem::path path, const RunConfig& config, Clock& clock);
  ~StepRecords() override;

  void window_begins() override;
  void step(const StepReport& step) override;

  /// The measurements of this process so far: a partial result without a reason.
  RunResult so_far() const;

 private:
  void flush();

  const RunConfig config_;
  const std::string started_;
  mutable std::mutex mutex_;
  // All below under mutex_.
  std::vector<double> step_ms_, losses_;
  std::string unwritten_;
  FileDescriptor file_;
  std::optional<Ticker> ticker_;  // last member: it uses the others
};

}  // namespace penstock
