// SPDX-License-Identifier: Apache-2.0
#include "bench/run/nonfinite_steps.h"

#include <fmt/format.h>

#include "bench/config/training_rules.h"
#include "dataflow/error.h"

namespace penstock {

std::exception_ptr NonfiniteSteps::add(std::int64_t step, bool finite_loss) {
  // An adaptive loss scale causes this occasionally.
  if (finite_loss && counted_steps_of_loss_scale(config_) > 0) {
    const std::lock_guard lock(mutex_);
    skipped_.insert(step);
    return nullptr;
  }
  const std::string where =
      fmt::format("step {} of {} in {}", step + 1, config_.model, config_.precision);
  const std::string text =
      finite_loss ? fmt::format("gradients of {} are not finite, its update was skipped", where)
                  : fmt::format("the loss of {} is not finite", where);
  if (config_.on_nonfinite == "stop") {
    const char* const recommendation =
        finite_loss ? "lower --fp16-loss-scale, let it adapt itself with "
                      "--fp16-enable-auto-loss-scale"
                    : "lower --init-learning-rate, warm it up with "
                      "--num-learning-rate-warmup-epochs, set --gradient-clip";
    return std::make_exception_ptr(DeviceError(
        fmt::format("{}; {}, or go on with --on-nonfinite continue", text, recommendation)));
  }
  const std::lock_guard lock(mutex_);
  std::set<std::int64_t>& steps = finite_loss ? skipped_ : nonfinite_;
  if (steps.empty()) probe_.note(text + "; later ones are only counted");
  steps.insert(step);
  return nullptr;
}

void NonfiniteSteps::add_to(std::map<std::string, std::int64_t>& counters) const {
  const std::lock_guard lock(mutex_);
  const auto count = [&](const char* name, const std::set<std::int64_t>& steps) {
    if (!steps.empty()) counters[name] = static_cast<std::int64_t>(steps.size());
  };
  count("nonfinite_steps", nonfinite_);
  count("skipped_steps", skipped_);
}

}  // namespace penstock
