// SPDX-License-Identifier: Apache-2.0
// Optimisers on device memory: one kernel for all weights, and one that sums up their decay.
#pragma once

#include <memory>
#include <vector>

#include "trainer/backends/gpu/device.h"
#include "trainer/optimizer.h"

namespace penstock::gpu {

/// `device` is borrowed. `checks_finite`: an update whose gradients are not all finite changes
/// nothing, and says so in StepResult::finite. Throws Unavailable for optimisers without a kernel.
std::unique_ptr<Optimizer> make_gpu_optimizer(const OptimizerChoice& choice, bool checks_finite,
                                              GpuDevice& device);

}  // namespace penstock::gpu
