// SPDX-License-Identifier: Apache-2.0
// parameter_server with servers in separate processes. One rank of each worker process pushes the
// sum over the process's ranks, and all of them get the weights that the server returns.
//
// Let w be the servers' weights, g_i the gradients of worker i, u(w, g) an optimizer's update, and
// scale 1 / ranks of all processes (mean), 1 / ranks of one process (mean-sum), or 1 (sum):
//   sync=mean   w = u(w, scale * (g_0 + g_1 + ...)), once, as in `replicated` and in
//               SyncReplicasOptimizer without backup workers
//   sync=tf     w = u(w, scale' * g_i) for each i in the order of arrival, then all workers read w,
//               as sync does in tf_cnn_benchmarks; mean is over a process's own ranks
//   sync=false  w = u(w, scale' * g_i) on arrival, and worker i reads w at once
// staged: a step uses weights one update old, and their pull overlaps the previous step.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "trainer/update_strategy.h"

namespace penstock::updates {

/// Takes the options placement and part_bytes.
std::unique_ptr<UpdateStrategy> make_served(const UpdateContext& context, const ServerLink& link,
                                            std::string_view sync, bool staged);

/// The bytes in the option of that name. Throws ConfigError if they exceed the limit of a message.
std::size_t part_bytes_of(const Options& options, std::string_view name);

}  // namespace penstock::updates
