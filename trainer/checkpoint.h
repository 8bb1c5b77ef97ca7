// SPDX-License-Identifier: Apache-2.0
// A training run on disk: weights, running statistics and what the optimizer remembers, as a
// safetensors file in plain order that says what it belongs to.
//
// Files appear whole or not at all: each is written under another name, flushed, and then renamed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dataflow/batch.h"
#include "trainer/backend.h"
#include "trainer/loss_scale.h"
#include "trainer/optimizer.h"
#include "trainer/safetensors.h"
#include "trainer/update_strategy.h"

namespace penstock {

/// What a checkpoint belongs to.
struct CheckpointInfo {
  std::string model, optimizer;
  ImageShape image{};
  std::int32_t classes = 0;
  std::int64_t step = 0;  ///< updates made
  std::uint64_t seed = 0;
  std::optional<LossScale> loss_scale{};  ///< where it adapts itself
  bool operator==(const CheckpointInfo&) const = default;
};

/// A checkpoint that was read: its own bytes, and views into them.
class Checkpoint {
 public:
  /// Checks everything that can be checked without a model: form, version, checksum. Throws
  /// DataError for damaged bytes and ConfigError for a file of something else; neither names it.
  explicit Checkpoint(std::vector<std::byte> bytes);
  Checkpoint(Checkpoint&&) = default;

  const CheckpointInfo& info() const noexcept { return info_; }
  /// The weights and running statistics into an executable whose device is idle, to evaluate them.
  /// Throws ConfigError for tensors that are not there or have another shape, before anything is
  /// written.
  void restore(Executable& executable) const;
  /// The same to train on, with the states of optimizer and update. False: it lacks what the
  /// update carries from step to step, which begins as in a run from step 0.
  bool restore(Executable& executable, Optimizer& optimizer, UpdateStrategy& update) const;

 private:
  /// The elements of a tensor, and where they belong.
  struct Write {
    const ParameterSpec* spec;
    Tensor to;
    std::vector<float> plain;
  };
  using Writes = std::vector<Write>;

  bool has(const std::string& name) const;
  Writes writes_of(const ParameterSet& set, const Tensor& weights) const;
  std::vector<float> values(const std::string& name, const std::vector<std::int64_t>& shape) const;

  std::vector<std::byte> bytes_;
  SafeTensors tensors_;
  CheckpointInfo info_;
};

/// folder/model-STEP.safetensors
std::filesystem::path checkpoint_path(const std::filesystem::path& folder, std::int64_t step);

/// Steps of the checkpoints in `folder`, in order. Empty where it does not exist.
std::vector<std::int64_t> list_checkpoints(const std::filesystem::path& folder);

/// Throws DataError or ConfigError with the path and what to do.
Checkpoint read_checkpoint(const std::filesystem::path& path);

/// Writes a checkpoint of a rank, whose device is idle, and returns its path. Throws DataError when
/// that fails; what was there before is then still there.
std::filesystem::path write_checkpoint(const std::filesystem::path& folder,
                                       const CheckpointInfo& info, Executable& executable,
                                       Optimizer& optimizer, UpdateStrategy& update);

/// Removes all but the `keep` newest; 0 keeps all. What cannot be removed stays.
void remove_old_checkpoints(const std::filesystem::path& folder, std::size_t keep);

}  // namespace penstock
