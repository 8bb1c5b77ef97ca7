// SPDX-License-Identifier: Apache-2.0
// Memory that a producer of batches shares with consumers on the same machine: equal slots in a
// memfd, which whoever maps it can rely on never to shrink. Where the kernel can (5.1), nobody but
// the process that made it can write to it.
//
// Thread-safety: what its const members return may be used from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dataflow/shared_memory/descriptor.h"

namespace penstock {

class SharedPool {
 public:
  /// Zeros, whose pages have been touched. Throws ConfigError where there is no room, DeviceError
  /// where the kernel has no such memory.
  SharedPool(std::size_t slot_bytes, std::size_t slots);
  SharedPool(const SharedPool&) = delete;
  SharedPool& operator=(const SharedPool&) = delete;
  ~SharedPool();

  std::size_t slots() const noexcept { return slots_; }
  /// Of one slot: as many as were asked for, or a few more. Begins at a multiple of 4,096.
  std::span<std::byte> slot(std::size_t index) const noexcept {
    return memory_.subspan(index * stride_, stride_);
  }
  /// Where in the pool an address of ours lies, in bytes.
  std::uint64_t offset_of(const std::byte* address) const noexcept {
    return static_cast<std::uint64_t>(address - memory_.data());
  }
  std::size_t bytes() const noexcept { return memory_.size(); }
  /// For those that it is passed to.
  int fd() const noexcept { return fd_.get(); }

 private:
  const std::size_t stride_, slots_;
  Descriptor fd_;
  std::span<std::byte> memory_;
};

}  // namespace penstock
