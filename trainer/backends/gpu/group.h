// SPDX-License-Identifier: Apache-2.0
// The exchange among replicas that are threads of one process, on one GPU or on several that reach
// each other's memory: each rank's stream adds its share of the elements over all ranks, in rank
// order, and writes the sum to all of them. The hosts meet to learn of each other's events; they do
// not wait for the device.
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
  /// One GpuDevice a rank; at most kMaxRanks. Drivers of other GPUs have been told to reach each
  /// other.
  /// `wire`: gradients are rounded to it before they are added, and so are the sums.
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
  Meeting meeting_;
};

}  // namespace penstock::gpu
