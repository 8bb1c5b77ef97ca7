// SPDX-License-Identifier: Apache-2.0
// Saves the steps of a run to a file while it measures, so that they survive a crash. The file has
// one line of JSON for the run, then one per step, and is written at least once a second. The
// result of a complete run replaces it.
//
// Thread-safety: listener calls from one thread, so_far from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/record/sweep_result.h"
#include "bench/run/progress.h"
#include "bench/run/runner.h"
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

/// The path of the steps of a run whose result goes to `out`: "result.steps.jsonl" beside
/// "result.json".
std::filesystem::path step_records_path(const std::filesystem::path& out);

/// True if `text` begins like such a file.
bool is_step_records(std::string_view text);
/// The run that saved the steps, as far as it came. Ignores an incomplete last line. Throws
/// DataError.
SweepResult parse_step_records(std::string_view text);

}  // namespace penstock
