// SPDX-License-Identifier: Apache-2.0
// Decides when a run saves a checkpoint, and checks which checkpoint a resumed run can continue.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "bench/config/due_points.h"
#include "bench/config/run_config.h"
#include "dataflow/clock.h"
#include "trainer/checkpoint.h"

namespace penstock {

class RunParts;

/// Creates --train-dir and lists the steps of its checkpoints in ascending order; returns none if
/// the flag is not given. Throws ConfigError if the folder is not writable, if flags contradict
/// each other, or if --eval finds no checkpoint.
std::vector<std::int64_t> prepare_train_dir(const RunConfig& config);

/// Throws ConfigError, with what to type, unless a run of `expected` can resume from `found`. With
/// `weights_only`, when nothing is trained, the optimizer need not match.
void refuse_foreign(const CheckpointInfo& found, const CheckpointInfo& expected, bool weights_only,
                    const std::filesystem::path& path);

/// Saves checkpoints, in the first process of a run. Used by one thread at a time, while the
/// devices are idle.
class CheckpointKeeper {
 public:
  /// `parts` must outlive the keeper.
  explicit CheckpointKeeper(RunParts& parts);

  /// The number of steps, at most `steps`, that may follow `position` before a save is due.
  std::int64_t cut(std::int64_t position, std::int64_t steps) const;
  /// Saves if a save is due at `position`. Throws DataError if saving fails.
  void pause(std::int64_t position);
  /// True: this process saves, and the current step is not saved.
  bool is_behind() const;
  /// Saves if is_behind(). Throws DataError if saving fails.
  void save();

 private:
  bool is_due(std::int64_t position) const;

  RunParts& parts_;
  const bool saves_;
  const DuePoints points_;
  const Nanoseconds period_;  // zero: no saving by time
  Time saved_at_;
  std::int64_t saved_step_;
  // Measured at the last pause, to predict when the period ends.
  Time paused_at_;
  std::int64_t paused_position_ = 0;
  Nanoseconds step_time_{};
};

}  // namespace penstock
