// SPDX-License-Identifier: Apache-2.0
// The shared memory of a producer, mapped into this process, and pinned so that a device can copy
// from it.
#pragma once

#include <cstddef>
#include <memory>

#include "dataflow/device.h"
#include "dataflow/net/shared_memory/mapped_pool.h"

namespace penstock::remote {

struct ProducerPool {
  net::MappedPool memory;
  std::unique_ptr<MemoryPin> pin;  ///< null: batches have to be copied from it; ends first

  /// How many batches of that size fit, as SharedFrameMemory lays them out.
  std::size_t batches(std::size_t batch_bytes) const noexcept {
    constexpr std::size_t kPage = 4096, kBetweenFrames = 64;
    return memory.bytes() / ((batch_bytes + kBetweenFrames + kPage - 1) / kPage * kPage);
  }
};

}  // namespace penstock::remote
