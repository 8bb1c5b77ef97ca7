// SPDX-License-Identifier: Apache-2.0
// Groups of ranks on GPUs: DeviceGroup sums with Penstock's kernel, NcclGroup through
// communicators.
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
#include "trainer/backend.h"
#include "trainer/backends/gpu/device.h"
#include "trainer/backends/gpu/driver.h"
#include "trainer/collective.h"
#include "trainer/collectives/meeting.h"

namespace penstock::gpu {

/// The type of the elements in that format.
DType dtype_of(WireFormat format);

/// Holds the gradients of one rank in the form that is sent between GPUs: f32 in place, or a 16-bit
/// copy.
class GradientWire {
 public:
  /// Borrows `device`.
  GradientWire(GpuDevice& device, WireFormat format) : device_(device), type_(dtype_of(format)) {}

  /// Makes room for tensors of `count` elements and loads the kernels. Both are forbidden while
  /// recording. The exchange of all weights before the first step therefore makes room for all
  /// gradients.
  void reserve(std::size_t count);
  /// Enqueues the rounding of f32 elements. Returns the tensor to exchange instead of `wide`.
  Tensor narrow(const Tensor& wide, Stream& stream);
  /// Enqueues the conversion of the sums of `narrow(wide)` back to f32.
  void widen(const Tensor& wide, Stream& stream);

 private:
  GpuDevice& device_;
  const DType type_;
  Buffer narrow_;
};

/// The exchange among replicas that are threads of one process. They are on one GPU, or on several
/// GPUs that can access each other's memory. Each rank's stream sums its share of the elements over
/// all ranks, in rank order, and writes the sum to all ranks. The host threads meet to learn each
/// other's events; they do not wait for the device.
class DeviceGroup final : public CollectiveGroup {
 public:
  /// One GpuDevice per rank, at most kMaxRanks. The drivers of different GPUs can already access
  /// each other's memory. Gradients are rounded to `wire` before they are added, and the sums are
  /// rounded too.
  DeviceGroup(std::span<Device* const> devices, WireFormat wire, Clock& clock,
              std::stop_token stop);
  std::unique_ptr<Collective> join(std::int32_t rank) override;

 private:
  friend class DeviceCollective;
  struct Rank {
    Rank(GpuDevice& of, WireFormat format)
        : device(of), wire(of, format), arrived(of.make_event()), done(of.make_event()) {}

    GpuDevice& device;
    GradientWire wire;
    Tensor tensor{};
    std::unique_ptr<Event> arrived, done;
  };

  std::vector<Rank> ranks_;
  collectives::Meeting meeting_;
};

/// The exchange through communicators, for ranks with one GPU each. The ranks are threads of this
/// process or belong to several processes. A rank connects in its first call, on its own thread.
///
/// The library chooses the order of additions, not the order of ranks; all ranks get the same bits.
/// The library rounds sums of 16 bits. The root's stream may run ahead in a broadcast, and the
/// other streams in a reduction, by as much as the library buffers.
///
/// The kernels of an exchange occupy a GPU until the kernels of all ranks have started. Meanwhile
/// an allocation elsewhere in the process may wait for that GPU. Threads of one process therefore
/// meet before each call, when only the call itself is left to do.
///
/// A stop request aborts all communicators of the process, including work that waits on the
/// devices. A call that times out, or that the library finds broken, aborts its own communicator.
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
