// SPDX-License-Identifier: Apache-2.0
// The exchange through communicators, for ranks with one GPU each. The ranks are threads of this
// process or belong to several processes. A rank connects in its first call, on its own thread.
//
// The library chooses the order of additions, not the order of ranks; all ranks get the same bits.
// The library rounds sums of 16 bits. The root's stream may run ahead in a broadcast, and the other
// streams in a reduction, by as much as the library buffers.
//
// The kernels of an exchange occupy a GPU until the kernels of all ranks have started. Meanwhile an
// allocation elsewhere in the process may wait for that GPU. Threads of one process therefore meet
// before each call, when only the call itself is left to do.
//
// A stop request aborts all communicators of the process, including work that waits on the devices.
// A call that times out, or that the library finds broken, aborts its own communicator.
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
    std::int32_t first_rank = 0;  ///< the first rank of this process, counted over all processes
    std::int32_t ranks = 1;       ///< number of ranks over all processes
    Nanoseconds timeout = std::chrono::seconds(60);
    WireFormat wire{};  ///< the format of all_reduce_sum; other calls move f32
  };
  /// Begins to connect a rank. Runs on that rank's thread.
  using Connect = std::function<std::unique_ptr<Communicator>(const CommunicatorPlace&)>;

  /// One device per rank of this process; each is a different GPU. The devices and the clock must
  /// outlive the group.
  NcclGroup(std::span<Device* const> devices, const Rules& rules, Connect connect, Clock& clock,
            std::stop_token stop);
  /// `rank` is a rank of this process, counted over all processes.
  std::unique_ptr<Collective> join(std::int32_t rank) override;

 private:
  friend class NcclCollective;
  struct Rank {
    Rank(GpuDevice& device, WireFormat format)
        : scratch(device.allocate(sizeof(float), MemoryKind::device)), wire(device, format) {}

    const Buffer scratch;  ///< the operand of an exchange without elements
    GradientWire wire;
    std::mutex mutex;
    std::unique_ptr<Communicator> communicator;  ///< under the mutex; null before and after use
    bool aborted = false;                        ///< under the mutex
    /// Ends the rank's exchanges permanently.
    void abort() noexcept;
  };

  const Rules rules_;
  const Connect connect_;
  Clock& clock_;
  const std::stop_token stop_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  collectives::Meeting meeting_;
  const std::stop_callback<std::function<void()>> abandoned_;
};

}  // namespace penstock::gpu
