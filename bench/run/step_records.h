// SPDX-License-Identifier: Apache-2.0
// The steps of a run as they are measured, in a file that is there whatever becomes of the process:
// a line of JSON for the run, then one for each step, written at least once a second. Results of
// runs that end replace it.
//
// Thread-safety: the listener's calls from one thread, so_far from any.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/progress_meter.h"
#include "bench/runner.h"
#include "bench/sweep_result.h"

namespace penstock {

class StepRecords final : public RunListener {
 public:
  /// `config` is resolved. An empty path: no file. Throws ConfigError where it cannot be made.
  /// `clock` outlives the object.
  StepRecords(std::filesystem::path path, const RunConfig& config, Clock& clock);
  ~StepRecords() override;

  void window_begins() override;
  void step(const StepReport& step) override;

  /// What was measured until now, of this process alone: a partial result without a reason.
  RunResult so_far() const;

 private:
  void flush();

  const RunConfig config_;
  const std::string started_;
  mutable std::mutex mutex_;
  // All below under mutex_.
  std::vector<double> step_ms_, losses_;
  std::string unwritten_;
  int file_ = -1;
  std::optional<Ticker> ticker_;  // last: it uses the others
};

/// Where the steps of a run are whose result goes to `out`: "result.steps.jsonl" beside
/// "result.json".
std::filesystem::path step_records_path(const std::filesystem::path& out);

/// Does a file begin like this?
bool is_step_records(std::string_view text);
/// The run that left them, as far as it came; a last line that is cut is left out. Throws
/// DataError.
SweepResult parse_step_records(std::string_view text);

}  // namespace penstock
