// SPDX-License-Identifier: Apache-2.0
// The automatic loss scale of tf_cnn_benchmarks: what gradients are multiplied by on their way
// through 16 bits, as large as they bear. A step whose gradients are not all finite halves it, and
// its update is skipped. Of steps whose gradients are finite the first N are counted, and the one
// behind them doubles the scale and begins to count anew.
//
// All ranks decide alike: they look at gradients that were summed over all of them, and a sum with
// a term that is infinite or no number is no finite number on any rank, in whatever order it is
// taken. Ranks that do not sum gradients decide each for itself. Each rank takes its scale off its
// gradients before they are summed, so that ranks with different scales add the same thing.
#pragma once

#include "dataflow/device_code.h"

namespace penstock {

class Device;
struct Tensor;

/// The scale of the next step, and the steps counted. Both are floats, so that ranks can hand them
/// on as a tensor of two; counts are exact up to kMostCountedSteps.
struct LossScale {
  float scale = 128;
  float good_steps = 0;
  bool operator==(const LossScale&) const = default;
};
constexpr float kMostCountedSteps = 1 << 24;

/// Bounds of our own, so that a scale never becomes 0 or infinite: f16's numbers lie between 2^-24
/// and 2^16, and no scale moves more of them into that range than one within 2^-40 and 2^40.
constexpr float kLeastLossScale = 0x1p-40F, kMostLossScale = 0x1p40F;

/// What comes behind a step whose gradients were all finite, or not.
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

/// From and to a tensor of two floats on the device, which is idle.
LossScale read_loss_scale(const Tensor& from, Device& device);
void write_loss_scale(const LossScale& scale, const Tensor& to, Device& device);

}  // namespace penstock
