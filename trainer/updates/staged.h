// SPDX-License-Identifier: Apache-2.0
// A parameter server whose clients read weights one update old: --staged-vars of tf_cnn_benchmarks.
// With W_t the homes' weights before step t, from 0, and W_{-1} = W_0, step t computes its
// gradients with W_{t-1}, and
//   W_{t+1} = update of W_t by the reduced gradients at W_{t-1}.
// Staleness is exactly 1. The weights of a step are distributed while the homes apply the previous
// step, so the transfer can overlap with it. An executable holds the weights of its next step, so
// evaluations use weights one update older than the homes' weights. A checkpoint saves both; its
// weights are the homes'.
//
// Difference from tf_cnn_benchmarks: there, gradients also pass a staging area, which adds a second
// step of delay.
#pragma once

#include <memory>

#include "trainer/placement.h"
#include "trainer/update_strategy.h"

namespace penstock::updates {

/// Needs the context's device.
std::unique_ptr<UpdateStrategy> make_staged_server(const UpdateContext& context,
                                                   Placement placement);

}  // namespace penstock::updates
