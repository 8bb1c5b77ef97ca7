// SPDX-License-Identifier: Apache-2.0
// One repetition of a sweep: `penstock run --json` in a child process, and where its feeder
// receives from outside, `penstock serve` in another one, connected by a socket in a private
// folder.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include "bench/child_process.h"
#include "bench/folder_lock.h"
#include "bench/progress.h"
#include "bench/runner.h"
#include "dataflow/clock.h"
#include "feeders/feeder.h"

namespace penstock {

/// A new folder under $TMPDIR or /tmp, removed with all that is in it. Making one also removes
/// those whose process was killed.
class PrivateFolder {
 public:
  PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  ~PrivateFolder();
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
  std::optional<FolderLock> lock_;
};

struct ChildRunOptions {
  std::string program;       ///< this executable
  Nanoseconds timeout{};     ///< of one run
  bool show_stderr = false;  ///< of the children
  /// Told a few times a second how far a run is, on another thread, while run_in_child waits for
  /// it; null: nobody asks.
  std::function<void(const Progress&)> on_progress{};
};

/// Runs `config`, whose feeder is `feeder`. Whatever goes wrong in a child is a failed result with
/// the reason. A stop request ends the run, which is then partial. No child survives the call.
RunResult run_in_child(const RunConfig& config, const FeederEntry& feeder,
                       const ChildRunOptions& options, const std::stop_token& stop);

/// Does a run of `config` need a producer that the caller has to start?
bool needs_producer(const RunConfig& config, const FeederEntry& feeder);

/// What a child's end says about its run of `config`.
RunResult result_of(const ChildExit& exit, const RunConfig& config);

}  // namespace penstock
