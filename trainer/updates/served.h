// SPDX-License-Identifier: Apache-2.0
// parameter_server with servers that are processes of their own: one rank of each worker process
// pushes the sum over the process's ranks, and all of them get the weights that come back.
//
// With w the servers' weights, g_i the gradients of worker i, u(w, g) an optimizer's update, and
// scale 1 / ranks of all processes (mean), 1 / ranks of one (mean-sum), or 1 (sum):
//   sync=mean   w = u(w, scale * (g_0 + g_1 + ...)), once, as replicated does: what
//               SyncReplicasOptimizer does without backup workers
//   sync=tf     w = u(w, scale' * g_i) for each i in the order of arrival, then all read w: what
//               tf_cnn_benchmarks calls sync; mean is over a process's own ranks
//   sync=false  w = u(w, scale' * g_i) on arrival, and worker i reads w at once
// staged: a step is computed with weights one update old, whose pull overlaps the step before.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "trainer/update_strategy.h"

namespace penstock {

/// `context.servers` and `context.hyper` are there; takes the options placement and part_bytes.
std::unique_ptr<UpdateStrategy> make_served(const UpdateContext& context, std::string_view sync,
                                            bool staged);

/// Bytes from the option of that name. Throws ConfigError where no message can have as many.
std::size_t part_bytes_of(const Options& options, std::string_view name);

}  // namespace penstock
