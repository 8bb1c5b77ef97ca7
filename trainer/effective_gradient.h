// SPDX-License-Identifier: Apache-2.0
// The first operations of every optimiser rule: scaling, decay, clipping.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>

#include "trainer/optimizer.h"

namespace penstock {

/// clip(gradient_scale * gradient + weight_decay * weight) of element i. It has no branches, so
/// that loops over it vectorise.
inline float effective_gradient(const Hyper& hyper, const UpdateRange& range, std::size_t i) {
  const float limit =
      hyper.gradient_clip > 0 ? hyper.gradient_clip : std::numeric_limits<float>::infinity();
  const float gradient =
      range.gradient_scale * range.gradient[i] + hyper.weight_decay * range.weight[i];
  return std::min(std::max(gradient, -limit), limit);
}

}  // namespace penstock
