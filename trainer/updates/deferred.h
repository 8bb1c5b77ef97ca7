// SPDX-License-Identifier: Apache-2.0
// Replicas that apply the gradients of the previous step: --variable-consistency relaxed of
// tf_cnn_benchmarks. With G_t the reduced gradients that step t, from 0, computes with weights w_t,
//   w_1 = w_0,  w_{t+1} = update of w_t by G_{t-1}.
// Staleness is exactly 1. The last step's gradients are never applied. Weight decay uses the
// weights that are being updated, as in all updates of Penstock; in tf_cnn_benchmarks it is part of
// the gradients and as old as they are. A checkpoint saves the gradients that are not yet applied.
#pragma once

#include <memory>

#include "trainer/update_strategy.h"

namespace penstock::updates {

/// Needs the context's device.
std::unique_ptr<UpdateStrategy> make_deferred(const UpdateContext& context);

}  // namespace penstock::updates
