// SPDX-License-Identifier: Apache-2.0
// Maps a producer's pool of shared memory for reading, in a consumer that does not trust the
// producer.
//
// Nothing that the producer does can make a read of `view`'s result raise a signal: the mapping is
// a memfd with the kernel's small pages, whose seals prevent shrinking. It also stays when the
// producer ends. But its bytes may change at any moment, so copy data before you check them.
//
// Thread-safety: any thread may read what the const members return.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>
#include <string>

#include "dataflow/clock.h"
#include "dataflow/machine/file_descriptor.h"

namespace penstock::net {

class MappedPool {
 public:
  /// Asks the socket `name` ("@...", see PoolListener), of a process of this user, for its
  /// descriptor, and maps it if it has at most `max_bytes`. Blocks until then, at most until
  /// `limit` has passed or a stop is requested. Throws DataError with what was found and what was
  /// expected.
  MappedPool(const std::string& name, std::uint64_t max_bytes, Nanoseconds limit,
             const std::stop_token& stop);
  /// Maps a descriptor that the caller already has.
  MappedPool(const FileDescriptor& fd, std::uint64_t max_bytes);
  MappedPool(const MappedPool&) = delete;
  MappedPool& operator=(const MappedPool&) = delete;
  ~MappedPool();

  std::uint64_t bytes() const noexcept { return memory_.size(); }
  /// Throws DataError if the range is not inside the pool, or does not begin at a multiple of
  /// 4,096.
  std::span<const std::byte> view(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  std::span<const std::byte> memory_;
};

}  // namespace penstock::net
