// SPDX-License-Identifier: Apache-2.0
// The memory that a producer shares, mapped here, and what a device needs to copy out of it.
#pragma once

#include <cstddef>
#include <memory>

#include "dataflow/device.h"
#include "dataflow/shared_memory/mapped_pool.h"

namespace penstock {

struct ProducerPool {
  MappedPool memory;
  std::unique_ptr<MemoryPin> pin;  ///< null: batches have to be copied out of it; ends first

  /// Such batches have room in it, as SharedFrameMemory lays them out.
  std::size_t batches(std::size_t batch_bytes) const noexcept {
    constexpr std::size_t kPage = 4096, kBetweenFrames = 64;
    return memory.bytes() / ((batch_bytes + kBetweenFrames + kPage - 1) / kPage * kPage);
  }
};

}  // namespace penstock
