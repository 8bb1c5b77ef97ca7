// SPDX-License-Identifier: Apache-2.0
// A producer's pool of shared memory, mapped for reading by a consumer that does not trust it.
//
// Whatever the producer does, reading what `view` returned ends in no signal: what is mapped is a
// memfd of the kernel's small pages whose seals keep it from shrinking. It also stays when the
// producer ends. But its bytes may change at any moment: what is checked has to be copied first.
//
// Thread-safety: what its const members return may be read from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>
#include <string>

#include "dataflow/clock.h"
#include "dataflow/shared_memory/descriptor.h"

namespace penstock {

class MappedPool {
 public:
  /// Asks the socket `name` ("@...", see PoolListener), of a process of this user, for its
  /// descriptor, and maps it if it has at most `max_bytes`. Blocks until `limit` has passed or a
  /// stop is requested, at most. Throws DataError with what was found and what was expected.
  MappedPool(const std::string& name, std::uint64_t max_bytes, Nanoseconds limit,
             const std::stop_token& stop);
  /// The same of a descriptor at hand.
  MappedPool(const Descriptor& fd, std::uint64_t max_bytes);
  MappedPool(const MappedPool&) = delete;
  MappedPool& operator=(const MappedPool&) = delete;
  ~MappedPool();

  std::uint64_t bytes() const noexcept { return memory_.size(); }
  /// Throws DataError for what does not lie in the pool, or begins at no multiple of 4,096.
  std::span<const std::byte> view(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  std::span<const std::byte> memory_;
};

}  // namespace penstock
