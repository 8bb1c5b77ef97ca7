// SPDX-License-Identifier: Apache-2.0
// What a step is told in device memory, and the kernels that change it: those of kernel_calls.h
// that compute on no tensors.
#pragma once

#include <cstdint>

#include "trainer/loss_scale.h"
#include "trainer/optimizer.h"

namespace penstock::gpu {

/// What changes from step to step, in device memory, so that recorded steps see new values.
struct StepScalars {
  std::int64_t step = 0;   ///< number of the training step
  std::int32_t valid = 0;  ///< images of the batch that count
  float loss_scale = 1;    ///< what gradients are multiplied by until they are widened
  float good_steps = 0;    ///< with it, a LossScale
  Hyper hyper{};
};

/// Scalars are set by a kernel whose arguments they are: nothing has to outlive the call.
struct SetStep {
  StepScalars* scalars = nullptr;
  std::int64_t step = 0;
  std::int32_t valid = 0;
  float loss_scale = 1;  ///< 0: stays as it is, as it adapts itself
};
struct SetHyper {
  StepScalars* scalars = nullptr;
  Hyper hyper{};
};
/// The scalars' LossScale becomes next_loss_scale() of it.
struct AdaptLossScale {
  const std::int32_t* finite = nullptr;  ///< [kFiniteBlocks], as CheckFinite left it; null: all are
  float count_to = 0;
  StepScalars* scalars = nullptr;
};

}  // namespace penstock::gpu
