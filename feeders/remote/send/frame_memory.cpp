// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/send/frame_memory.h"

#include "dataflow/error.h"

namespace penstock::remote {

Buffer FrameMemory::allocate(std::size_t bytes, MemoryKind kind) {
  const std::size_t size = kLead + bytes + kTail;
  Buffer& block = blocks_.emplace_back(host_.allocate(size, kind));
  return Buffer(block.bytes().data() + kLead, bytes, [](std::byte*) {});
}

Buffer SharedFrameMemory::allocate(std::size_t bytes, MemoryKind) {
  if (allocated_ == pool_.slots() || bytes + kFrameAlignment > pool_.slot(0).size()) {
    throw DeviceError(
        "cannot allocate {} bytes of shared memory: its slots are for one ring's batches", bytes);
  }
  return Buffer(pool_.slot(allocated_++).data(), bytes, [](std::byte*) {});
}

}  // namespace penstock::remote
