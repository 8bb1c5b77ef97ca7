// SPDX-License-Identifier: Apache-2.0
// Updates with servers in separate processes: parameter_server here, and byteps below. One rank of
// each worker process pushes the sum over the process's ranks, and all of them get the weights that
// the server returns.
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
#include <cstdint>
#include <memory>
#include <string_view>

#include "trainer/cluster/servers/model_layout.h"
#include "trainer/updates/arena_copy.h"

namespace penstock::updates {

/// What updates with servers in other processes share. A subclass calls servers_.release() in its
/// destructor if it leads, because the arenas are freed next.
class ServedUpdate : public RankUpdate {
 public:
  bool recordable() const noexcept override { return false; }

 protected:
  ServedUpdate(const UpdateContext& context, const ServerLink& link)
      : RankUpdate(context),
        servers_(link.servers),
        first_step_(link.first_step),
        device_(*context.device) {}

  /// Whether this rank talks to the servers for all ranks of its process.
  bool leads() const noexcept { return collective_.world().rank == 0; }
  /// Waits until the stream's work is done, because other threads use the arenas now.
  void settle(Stream& stream) {
    if (arrived_ == nullptr) arrived_ = device_.make_event();
    stream.record(*arrived_);
    arrived_->wait_until(Time::max());
  }

  cluster::ServerConnection& servers_;
  const std::int64_t first_step_;

 private:
  Device& device_;
  std::unique_ptr<Event> arrived_;
};

/// Takes the options placement and part_bytes.
std::unique_ptr<UpdateStrategy> make_served(const UpdateContext& context, const ServerLink& link,
                                            cluster::ServerRule rule, bool staged);

/// The update of BytePS: servers only add, and each worker applies the sum itself, as `replicated`
/// does.
///
/// The arena of gradients is divided into partitions. Each is pushed as soon as backward has
/// finished it, and its sum is pulled while others are still being pushed. Waiting partitions are
/// sorted by the order in which the next forward pass needs them, front layers first. At most a
/// window of bytes is on its way.
///
/// Unlike in BytePS, small tensors share a partition, and a partition lies on the server with the
/// fewest bytes so far instead of one chosen by a hash.
///
/// Options: partition_bytes, credit_bytes.
std::unique_ptr<UpdateStrategy> make_byteps(const UpdateContext& context, const ServerLink& link);

/// The bytes in the option of that name. Throws ConfigError if they exceed the limit of a message.
std::size_t part_bytes_of(const Options& options, std::string_view name);

}  // namespace penstock::updates
