// SPDX-License-Identifier: Apache-2.0
// Optimisers on device memory: one kernel for all weights, and one that sums up their decay; two
// for the norms that layer-wise rules want, one that looks for gradients which are not finite, and
// one that adapts the loss scale.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/backends/gpu/device.h"
#include "trainer/optimizer.h"

namespace penstock::gpu {

/// What an optimizer makes of gradients that are not all finite.
struct FiniteRules {
  bool checks = false;        ///< such an update changes nothing, and says so in StepResult::finite
  float loss_scale = 1;       ///< of the first step, where it adapts itself
  std::int32_t count_to = 0;  ///< above 0: the device's loss scale adapts itself
};

/// `device` is borrowed. Throws Unavailable for optimisers without a kernel.
std::unique_ptr<Optimizer> make_gpu_optimizer(const OptimizerChoice& choice,
                                              const FiniteRules& rules, GpuDevice& device);

}  // namespace penstock::gpu
