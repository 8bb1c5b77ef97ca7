// SPDX-License-Identifier: Apache-2.0
// When a run saves itself, and which checkpoints it may go on from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "bench/due_points.h"
#include "bench/run_config.h"
#include "dataflow/clock.h"
#include "trainer/checkpoint.h"

namespace penstock {

class RunParts;

/// Makes --train-dir, and lists the steps of the checkpoints in it, in order; none where the flag
/// is not given. Throws ConfigError for a folder that cannot be written, for flags that contradict
/// each other, and where --eval has nothing to evaluate.
std::vector<std::int64_t> prepare_train_dir(const RunConfig& config);

/// Throws ConfigError unless a run of `wanted` can go on from `found`, with what to type; only the
/// weights have to fit where nothing is trained.
void refuse_foreign(const CheckpointInfo& found, const CheckpointInfo& wanted, bool weights_only,
                    const std::filesystem::path& path);

/// Used by one thread at a time, while the devices are idle.
class CheckpointKeeper {
 public:
  /// `parts` outlive the keeper.
  explicit CheckpointKeeper(RunParts& parts);

  /// How many of `steps` steps, the first behind `position`, may be taken before saving is due.
  std::int64_t cut(std::int64_t position, std::int64_t steps) const;
  /// Saves if that is due at `position`. Throws DataError when it fails.
  void pause(std::int64_t position);
  /// Saves unless that has been done since the last step. The same.
  void save();

 private:
  bool is_due(std::int64_t position) const;

  RunParts& parts_;
  const bool saves_;
  const DuePoints points_;
  const Nanoseconds period_;  // zero: not by time
  Time saved_at_;
  std::int64_t saved_step_;
  // Behind the last pause, to foresee when the period is over.
  Time paused_at_;
  std::int64_t paused_position_ = 0;
  Nanoseconds step_time_{};
};

}  // namespace penstock
