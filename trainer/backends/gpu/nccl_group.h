// SPDX-License-Identifier: Apache-2.0
// The exchange through communicators, for ranks with a GPU each: threads of this process, or one of
// each process. A rank connects in its first call, on its own thread.
//
// Sums are added in the library's order, not in that of the ranks, and are the same bits on all.
// Those of 16 bits are rounded as the library does it.
// A root's stream may run ahead of a broadcast, and the others' of a reduction, as far as the
// library buffers.
//
// Kernels of an exchange occupy a GPU until all ranks' have come, while an allocation elsewhere in
// the process may wait for that GPU: threads of one process therefore meet before each call, with
// nothing but the call itself left to do.
//
// A stop request aborts all communicators of the process, also what waits on the devices. A call
// that is not under way in time, or that the library finds broken, aborts its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <vector>

#include "dataflow/clock.h"
#include "dataflow/device.h"
#include "trainer/backends/gpu/communicator.h"
#include "trainer/backends/gpu/gradient_wire.h"
#include "trainer/collective.h"
#include "trainer/collectives/meeting.h"

namespace penstock::gpu {

class NcclGroup final : public CollectiveGroup {
 public:
  struct Rules {
    std::int32_t first_rank = 0;  ///< of this process's ranks, over all processes
    std::int32_t ranks = 1;       ///< over all processes
    Nanoseconds timeout = std::chrono::seconds(60);
    WireFormat wire{};  ///< of all_reduce_sum; other calls move f32
  };
  /// Begins to connect a rank; called on that rank's thread.
  using Connect = std::function<std::unique_ptr<Communicator>(const CommunicatorPlace&)>;

  /// One device a rank of this process, each another GPU. They and the clock outlive the group.
  NcclGroup(std::span<Device* const> devices, const Rules& rules, Connect connect, Clock& clock,
            std::stop_token stop);
  /// `rank` is one of this process, and counts all processes' ranks.
  std::unique_ptr<Collective> join(std::int32_t rank) override;

 private:
  friend class NcclCollective;
  struct Rank {
    Rank(GpuDevice& device, WireFormat format)
        : scratch(device.allocate(sizeof(float), MemoryKind::device)), wire(device, format) {}

    const Buffer scratch;  ///< what an empty exchange adds up
    GradientWire wire;
    std::mutex mutex;
    std::unique_ptr<Communicator> communicator;  ///< under the mutex; null: not yet, or no more
    bool aborted = false;                        ///< under the mutex
    /// Ends the rank's exchanges for good.
    void abort() noexcept;
  };

  const Rules rules_;
  const Connect connect_;
  Clock& clock_;
  const std::stop_token stop_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  Meeting meeting_;
  const std::stop_callback<std::function<void()>> abandoned_;
};

}  // namespace penstock::gpu
