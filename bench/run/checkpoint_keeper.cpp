// SPDX-License-Identifier: Apache-2.0
#include "bench/run/checkpoint_keeper.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

#include "bench/run/run_parts.h"
#include "dataflow/error.h"

namespace penstock {
namespace {

/// Steps to take while the duration of a step is unknown.
constexpr std::int64_t kFirstSteps = 10;

std::string describe(const ImageShape& shape) {
  return fmt::format("{}x{}x{}", shape.height, shape.width, shape.channels);
}

}  // namespace

std::vector<std::int64_t> prepare_train_dir(const RunConfig& config) {
  if (config.save_model_secs > 0 && config.save_model_steps > 0) {
    throw ConfigError("--save-model-secs and --save-model-steps exclude each other; keep one");
  }
  if (config.train_dir.empty()) {
    if (config.eval) {
      throw ConfigError("--eval evaluates a checkpoint; state its folder with --train-dir");
    }
    if (config.save_model_secs > 0 || config.save_model_steps > 0) {
      throw ConfigError(
          "--save-model-secs and --save-model-steps need a folder; state --train-dir");
    }
    return {};
  }
  const std::vector<std::int64_t> steps = list_checkpoints(config.train_dir);
  if (config.eval) {
    if (steps.empty()) {
      throw ConfigError(
          "there is no checkpoint in --train-dir '{}'; expected a file model-STEP.safetensors; "
          "train with the same --train-dir first",
          config.train_dir);
    }
    return steps;
  }
  std::error_code error;
  std::filesystem::create_directories(config.train_dir, error);
  if (error || ::access(config.train_dir.c_str(), W_OK | X_OK) != 0) {
    throw ConfigError("--train-dir is '{}', which is not writable{}; state another folder",
                      config.train_dir, error ? ": " + error.message() : "");
  }
  return steps;
}

void refuse_foreign(const CheckpointInfo& found, const CheckpointInfo& expected, bool weights_only,
                    const std::filesystem::path& path) {
  const auto refuse = [&](std::string_view what, const std::string& theirs, const std::string& ours,
                          std::string_view flag) {
    throw ConfigError(
        "the checkpoint '{0}' is of {1} {2}, and this run of {3}; nothing was changed; "
        "pass {4} {2}, or another --train-dir",
        path.string(), what, theirs, ours, flag);
  };
  if (found.model != expected.model) refuse("the model", found.model, expected.model, "--model");
  if (found.image != expected.image) {
    throw ConfigError(
        "the checkpoint '{}' is of images of {}, and this run of {}; nothing was changed; pass "
        "--image-size {}, or another --train-dir",
        path.string(), describe(found.image), describe(expected.image), found.image.height);
  }
  if (found.classes != expected.classes) {
    refuse("classes", std::to_string(found.classes), std::to_string(expected.classes), "--classes");
  }
  if (!weights_only && found.optimizer != expected.optimizer) {
    refuse("the optimizer", found.optimizer, expected.optimizer, "--optimizer");
  }
}

CheckpointKeeper::CheckpointKeeper(RunParts& parts)
    : parts_(parts),
      saves_(parts.setup.is_first() && !parts.setup.config.train_dir.empty() &&
             !parts.setup.config.eval && !parts.setup.config.forward_only),
      points_(parts.setup.config.save_model_steps > 0
                  ? DuePoints::every(static_cast<double>(parts.setup.config.save_model_steps))
                  : DuePoints()),
      period_(std::chrono::round<Nanoseconds>(
          std::chrono::duration<double>(parts.setup.config.save_model_secs))),
      saved_at_(parts.setup.clock.now()),
      saved_step_(parts.schedule.first_step),
      paused_at_(saved_at_) {}

std::int64_t CheckpointKeeper::cut(std::int64_t position, std::int64_t steps) const {
  if (!saves_) return steps;
  if (const std::int64_t next = points_.next_after(position); next != DuePoints::kNever) {
    steps = std::min(steps, next - position);
  }
  if (period_ > Nanoseconds{}) {
    std::int64_t foreseen = kFirstSteps;
    if (step_time_ > Nanoseconds{}) {
      foreseen = (saved_at_ + period_ - parts_.setup.clock.now()) / step_time_;
    }
    steps = std::min(steps, std::max<std::int64_t>(1, foreseen));
  }
  return steps;
}

bool CheckpointKeeper::is_due(std::int64_t position) const {
  if (points_.is_due(position)) return true;
  return period_ > Nanoseconds{} && parts_.setup.clock.now() >= saved_at_ + period_;
}

void CheckpointKeeper::pause(std::int64_t position) {
  const Time now = parts_.setup.clock.now();
  if (position > paused_position_) step_time_ = (now - paused_at_) / (position - paused_position_);
  if (saves_ && is_due(position)) save();
  paused_position_ = position;
  paused_at_ = parts_.setup.clock.now();
}

bool CheckpointKeeper::is_behind() const {
  return saves_ && parts_.ranks.front().replica->step() != saved_step_;
}

void CheckpointKeeper::save() {
  if (!is_behind()) return;
  RunParts::Rank& rank = parts_.ranks.front();
  const std::int64_t step = rank.replica->step();
  write_checkpoint(parts_.setup.config.train_dir, parts_.checkpoint_info(step), *rank.executable,
                   *rank.optimizer, *rank.update);
  remove_old_checkpoints(parts_.setup.config.train_dir,
                         static_cast<std::size_t>(parts_.setup.config.max_ckpts_to_keep));
  saved_step_ = step;
  saved_at_ = parts_.setup.clock.now();
}

}  // namespace penstock
