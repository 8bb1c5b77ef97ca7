// SPDX-License-Identifier: Apache-2.0
// The exchange among replicas that are threads of one process. They are on one GPU, or on several
// GPUs that can access each other's memory. Each rank's stream sums its share of the elements over
// all ranks, in rank order, and writes the sum to all ranks. The host threads meet to learn each
// other's events; they do not wait for the device.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "trainer/backends/gpu/device.h"
#include "trainer/backends/gpu/gradient_wire.h"
#include "trainer/collective.h"
#include "trainer/collectives/meeting.h"

namespace penstock::gpu {

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

}  // namespace penstock::gpu
