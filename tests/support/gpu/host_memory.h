// SPDX-License-Identifier: Apache-2.0
// The memory of host drivers: heap blocks that know their device and name, so that accesses outside
// of them are found. Thread-safety: none; guard it.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>

#include "dataflow/device.h"
#include "tests/support/gpu/accesses.h"
#include "tests/support/gpu/happens_before.h"

namespace penstock::gpu {

/// The device memory that an allocation takes.
constexpr std::size_t rounded_up(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

class HostMemory {
 public:
  struct Block {
    std::size_t bytes = 0;
    MemoryKind kind = MemoryKind::device;
    std::string name;      ///< such as "device block 3"
    bool foreign = false;  ///< other code allocated it and frees it
  };

  /// Names each block in `order`.
  explicit HostMemory(HappensBefore& order) : order_(order) {}
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  ~HostMemory();

  /// Aligned to 256 bytes and filled with 0xFF, which is NaN in every floating-point type.
  std::byte* allocate(std::size_t bytes, MemoryKind kind);
  void free(std::byte* data);
  /// Treats memory of other code like a pinned block until it is forgotten.
  void add_foreign(std::span<const std::byte> memory);
  void forget_foreign(const std::byte* data);
  /// The block that holds the first byte; null if there is none.
  const Block* find(const std::byte* data) const;
  /// Throws std::logic_error unless each range is within one block. With `pageable`, a range
  /// outside of all blocks is allowed, too.
  void check(const std::string& operation, const Accesses& accesses, bool pageable) const;

 private:
  std::map<const std::byte*, Block>::const_iterator place(const std::byte* data) const;

  void add(const std::byte* data, Block block);

  HappensBefore& order_;
  std::map<const std::byte*, Block> blocks_;
  std::size_t made_ = 0;
};

}  // namespace penstock::gpu
