// SPDX-License-Identifier: Apache-2.0
// Optimisers on device memory. One kernel updates all weights and one sums up their decay. Two more
// compute the norms for layer-wise rules, one checks that gradients are finite, and one adapts the
// loss scale.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/backends/gpu/device.h"
#include "trainer/optimizer.h"

namespace penstock::gpu {

/// How an optimizer treats gradients that are not all finite.
struct FiniteRules {
  bool checks = false;        ///< such an update changes nothing and clears StepResult::finite
  float loss_scale = 1;       ///< the loss scale of the first step, if it adapts itself
  std::int32_t count_to = 0;  ///< above 0: the device's loss scale adapts itself
};

/// Borrows `device`. Throws Unavailable for optimisers without a kernel.
std::unique_ptr<Optimizer> make_gpu_optimizer(const OptimizerChoice& choice,
                                              const FiniteRules& rules, GpuDevice& device);

}  // namespace penstock::gpu
