// SPDX-License-Identifier: Apache-2.0
// The automatic loss scale of tf_cnn_benchmarks. Gradients are multiplied by it while they are 16
// bits wide; it is as large as they allow. If a step's gradients are not all finite, the scale is
// halved and the update is skipped. Otherwise the step is counted. After N counted steps, the next
// finite step doubles the scale and restarts the count.
//
// All ranks that sum gradients decide alike: they check the sums, and a sum with an infinite or NaN
// term is not finite on any rank, in any order of addition. Ranks that do not sum gradients each
// decide alone. Each rank divides its gradients by its own scale before the sum, so ranks with
// different scales can add their gradients.
#pragma once

#include "dataflow/device_code.h"

namespace penstock {

class Device;
struct Tensor;

/// The scale of the next step, and the number of counted steps. Both are floats, so that ranks can
/// pass them as a tensor of two elements. Counts are exact up to kMostCountedSteps.
struct LossScale {
  float scale = 128;
  float good_steps = 0;
  bool operator==(const LossScale&) const = default;
};
constexpr float kMostCountedSteps = 1 << 24;

/// Penstock's own bounds, so that a scale never becomes 0 or infinite. The numbers of f16 lie
/// between 2^-24 and 2^16; scales outside of 2^-40 to 2^40 move no further numbers into that range.
constexpr float kLeastLossScale = 0x1p-40F, kMostLossScale = 0x1p40F;

/// The scale after a step whose gradients were all finite, or not.
PENSTOCK_HOST_DEVICE inline LossScale next_loss_scale(const LossScale& now, bool finite,
                                                      float count_to) {
  if (!finite) {
    const float half = now.scale / 2;
    return {half < kLeastLossScale ? kLeastLossScale : half, 0};
  }
  if (now.good_steps < count_to) return {now.scale, now.good_steps + 1};
  const float twice = now.scale * 2;
  return {twice > kMostLossScale ? kMostLossScale : twice, 0};
}

/// Copy from and to a tensor of two floats on the device. The device is idle.
LossScale read_loss_scale(const Tensor& from, Device& device);
void write_loss_scale(const LossScale& scale, const Tensor& to, Device& device);

}  // namespace penstock
