// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/receive/shared_frame_memory.h"

#include <string>

#include "dataflow/error.h"

namespace penstock::remote {

Buffer SharedFrameMemory::allocate(std::size_t bytes, MemoryKind) {
  if (allocated_ == pool_.slots() || bytes + kFrameAlignment > pool_.slot(0).size()) {
    throw DeviceError("cannot allocate " + std::to_string(bytes) +
                      " bytes of shared memory: its slots are for one ring's batches");
  }
  return Buffer(pool_.slot(allocated_++).data(), bytes, [](std::byte*) {});
}

}  // namespace penstock::remote
