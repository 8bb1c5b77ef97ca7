// SPDX-License-Identifier: Apache-2.0
// Saves and restores a training run: weights, running statistics and the optimizer's state. A
// checkpoint is a safetensors file in plain order that also describes its run.
//
// A write is atomic: each file is written under another name, flushed, and then renamed.
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

/// Describes the run that a checkpoint belongs to.
struct CheckpointInfo {
  std::string model, optimizer;
  ImageShape image{};
  std::int32_t classes = 0;
  std::int64_t step = 0;  ///< updates made
  std::uint64_t seed = 0;
  std::optional<LossScale> loss_scale{};  ///< set if the loss scale is automatic
  bool operator==(const CheckpointInfo&) const = default;
};

/// A checkpoint read from disk: its bytes, and views into them.
class Checkpoint {
 public:
  /// Checks everything that needs no model: format, version, checksum. Throws DataError for damaged
  /// bytes and ConfigError for a file of another kind. Neither message names the file.
  explicit Checkpoint(std::vector<std::byte> bytes);
  Checkpoint(Checkpoint&&) = default;

  const CheckpointInfo& info() const noexcept { return info_; }
  std::span<const std::byte> bytes() const noexcept { return bytes_; }
  /// Restores weights and running statistics into an executable for evaluation. Its device is idle.
  /// Throws ConfigError if a tensor is missing or has another shape, before it writes anything.
  void restore(Executable& executable) const;
  /// Also restores the state of the optimizer and the update, to continue training. Returns false
  /// if the checkpoint lacks the state that the update carries from step to step; that state then
  /// starts as at step 0.
  bool restore(Executable& executable, Optimizer& optimizer, UpdateStrategy& update) const;

 private:
  /// The elements of a tensor, and their destination.
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

/// The steps of the checkpoints in `folder`, ascending. Empty if the folder does not exist.
std::vector<std::int64_t> list_checkpoints(const std::filesystem::path& folder);

/// Throws DataError or ConfigError; the message has the path and what to do.
Checkpoint read_checkpoint(const std::filesystem::path& path);

/// Writes a checkpoint of one rank, whose device is idle, and returns its path. Throws DataError on
/// failure; earlier files are then unchanged.
std::filesystem::path write_checkpoint(const std::filesystem::path& folder,
                                       const CheckpointInfo& info, Executable& executable,
                                       Optimizer& optimizer, UpdateStrategy& update);

/// Removes all but the `keep` newest checkpoints; 0 keeps all. Ignores files that it cannot remove.
void remove_old_checkpoints(const std::filesystem::path& folder, std::size_t keep);

}  // namespace penstock
