// SPDX-License-Identifier: Apache-2.0
// Memory that a producer of batches shares with consumers on the same machine: equal slots in a
// memfd that can never shrink. If the kernel supports it (5.1), only the process that made the
// memory can write to it.
//
// Thread-safety: any thread may use what the const members return.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dataflow/machine/file_descriptor.h"

namespace penstock::net {

class SharedPool {
 public:
  /// The memory is zeroed, and its pages have been touched. Throws ConfigError if there is not
  /// enough memory, DeviceError if the kernel does not support such memory.
  SharedPool(std::size_t slot_bytes, std::size_t slots);
  SharedPool(const SharedPool&) = delete;
  SharedPool& operator=(const SharedPool&) = delete;
  ~SharedPool();

  std::size_t slots() const noexcept { return slots_; }
  /// The memory of one slot: `slot_bytes`, or a few more. It begins at a multiple of 4,096.
  std::span<std::byte> slot(std::size_t index) const noexcept {
    return memory_.subspan(index * stride_, stride_);
  }
  /// The offset in the pool, in bytes, of an address in this process.
  std::uint64_t offset_of(const std::byte* address) const noexcept {
    return static_cast<std::uint64_t>(address - memory_.data());
  }
  std::size_t bytes() const noexcept { return memory_.size(); }
  /// The descriptor to pass to consumers.
  int fd() const noexcept { return fd_.get(); }

 private:
  const std::size_t stride_, slots_;
  FileDescriptor fd_;
  std::span<std::byte> memory_;
};

}  // namespace penstock::net
