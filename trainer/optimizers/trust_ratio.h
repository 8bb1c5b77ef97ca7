// SPDX-License-Identifier: Apache-2.0
// The factor of layer-wise rules for a tensor's learning rate. Host code and kernels use it.
#pragma once

#include "dataflow/device_code.h"

namespace penstock {

/// eta * |w| / (|g| + decay * |w| + epsilon); 1 if a norm is 0, as it is for tensors that the rule
/// does not scale.
PENSTOCK_HOST_DEVICE inline float trust_ratio(double eta, double epsilon, double decay,
                                              double weight_norm, double gradient_norm) {
  if (!(weight_norm > 0 && gradient_norm > 0)) return 1;
  return static_cast<float>(eta * weight_norm / (gradient_norm + decay * weight_norm + epsilon));
}

}  // namespace penstock
