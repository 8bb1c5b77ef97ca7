// SPDX-License-Identifier: Apache-2.0
// A parameter server whose clients read weights one update old: tf_cnn_benchmarks' --staged-vars.
// With W_t the homes' weights in front of step t, from 0, and W_{-1} = W_0, step t computes its
// gradients with W_{t-1}, and
//   W_{t+1} = update of W_t by the reduced gradients at W_{t-1}:
// staleness is exactly 1. What a step reads is handed out while the homes apply the step before, so
// that it could travel meanwhile. An executable holds what its next step reads: evaluations see
// weights that are one update older than the homes'. A checkpoint has both; the homes' are its
// weights.
//
// Beside tf_cnn_benchmarks: there gradients pass a staging area as well, which adds a second step
// of delay; here they do not.
#pragma once

#include <memory>

#include "trainer/placement.h"
#include "trainer/update_strategy.h"

namespace penstock {

/// Needs the context's device.
std::unique_ptr<UpdateStrategy> make_staged_server(const UpdateContext& context,
                                                   Placement placement);

}  // namespace penstock
