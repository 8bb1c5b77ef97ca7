// SPDX-License-Identifier: Apache-2.0
// The views of a ladder over ranks: files in tfperftest's layout, and a table and progress on a
// terminal.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>

#include "bench/run/observe/progress_line.h"
#include "bench/scaling/scale_runner.h"

namespace penstock::scaling {

void write_scale_text(const ScaleResult& result, std::ostream& out);

/// Prints progress on standard error during the ladder, and writes its files after each run.
class ScaleProgress final : public ScaleListener {
 public:
  ScaleProgress(std::filesystem::path folder, std::size_t runs, bool single_line)
      : folder_(std::move(folder)), runs_(runs), line_(stderr, single_line) {}

  void run_begins(const Rung& rung, std::int32_t repetition) override;
  void run_ended(const Rung& rung, bool stopped) override;
  /// Throws ConfigError if the first files cannot be written. Later failures only clear saved().
  void result_changed(const ScaleResult& result) override;

  void finish() { line_.clear(); }
  /// Have all results so far been saved?
  bool saved() const noexcept { return saver_.saved(); }

 private:
  const std::filesystem::path folder_;
  const std::size_t runs_;
  LiveLine line_;
  std::string where_;  // the run under way
  std::size_t begun_ = 0;
  ResultSaver saver_;
};

/// One line for each rung that ran: "devices,images per second", without a header. Failed rungs
/// have no line.
std::string rates_csv(const ScaleResult& result);
/// The same lines with the ideal rate: that of the first rung, scaled to the number of devices.
std::string ideal_csv(const ScaleResult& result);
nlohmann::ordered_json to_json(const ScaleResult& result);

/// Writes into the existing `folder`: NAME.csv, NAME.csv.ideal, NAME.svg and NAME.json. For each
/// rung with runs it also writes NAME_gDEVICES/runs.json, one line of `penstock run --json` per
/// run, and NAME_gDEVICES/imagespersec, the rate of one device. Throws DataError.
void write_scale_files(const ScaleResult& result, const std::filesystem::path& folder);

}  // namespace penstock::scaling
