// SPDX-License-Identifier: Apache-2.0
// The scalars of a step in device memory, and the kernels that change them: those of kernel_calls.h
// that compute on no tensors.
#pragma once

#include <cstdint>

#include "trainer/loss_scale.h"
#include "trainer/optimizer.h"

namespace penstock::gpu {

/// Values that change from step to step. They are in device memory, so that recorded steps see new
/// values.
struct StepScalars {
  std::int64_t step = 0;   ///< number of the training step
  std::int32_t valid = 0;  ///< images of the batch that count
  float loss_scale = 1;    ///< gradients are multiplied by it until they are widened
  float good_steps = 0;    ///< together with loss_scale a LossScale
  Hyper hyper{};
};

/// A kernel takes the new values as arguments and stores them: nothing has to outlive the call.
struct SetStep {
  StepScalars* scalars = nullptr;
  std::int64_t step = 0;
  std::int32_t valid = 0;
  float loss_scale = 1;  ///< 0: unchanged, because it adapts itself
};
struct SetHyper {
  StepScalars* scalars = nullptr;
  Hyper hyper{};
};
/// Replaces the scalars' LossScale by its next_loss_scale().
struct AdaptLossScale {
  const std::int32_t* finite = nullptr;  ///< [kFiniteBlocks], from CheckFinite; null: all finite
  float count_to = 0;
  StepScalars* scalars = nullptr;
};

}  // namespace penstock::gpu
