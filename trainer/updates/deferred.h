// SPDX-License-Identifier: Apache-2.0
// Replicas that apply the gradients of the step before: tf_cnn_benchmarks' --variable-consistency
// relaxed. With G_t the reduced gradients that step t, from 0, computes with weights w_t,
//   w_1 = w_0,  w_{t+1} = update of w_t by G_{t-1}:
// staleness is exactly 1. The last step's gradients are never applied. Weight decay, where there is
// any, is of the weights that are being updated, as in all updates here; there, it is part of the
// gradients and as old as they. A checkpoint keeps the gradients that are still to be applied.
#pragma once

#include <memory>

#include "trainer/update_strategy.h"

namespace penstock {

/// Needs the context's device.
std::unique_ptr<UpdateStrategy> make_deferred(const UpdateContext& context);

}  // namespace penstock
