// SPDX-License-Identifier: Apache-2.0
// One rank's end of the vendor's library that connects GPUs (NCCL), in one process or several. Like
// driver.h, it needs no header of a vendor.
//
// No call blocks. An operation is in progress until ready() returns true, and no other operation
// may begin before that. Errors are DeviceError with the library's call and its error text.
// Thread-safety: one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "dataflow/batch.h"

namespace penstock::gpu {

using StreamHandle = struct StreamTag*;

/// The identity of a group of ranks. One rank makes it and hands it to all others.
struct CommunicatorId {
  std::array<std::byte, 128> bytes{};
};

/// A rank and the number of ranks, over all processes.
struct CommunicatorPlace {
  std::int32_t rank = 0, size = 1;
};

class Communicator {
 public:
  /// Aborts the operation in progress.
  virtual ~Communicator() = default;

  /// Replaces the elements in device memory by their sum over all ranks, in place. All ranks get
  /// the same bits; the library chooses the order of the additions. Elements are of `type`: f32,
  /// f16 or bf16. The other calls move f32.
  virtual void all_reduce(void* data, DType type, std::size_t count, StreamHandle stream) = 0;
  /// Replaces the root's elements by their sum over all ranks.
  virtual void reduce(float* data, std::size_t count, std::int32_t root, StreamHandle stream) = 0;
  /// Replaces the elements of all ranks by the root's.
  virtual void broadcast(float* data, std::size_t count, std::int32_t root,
                         StreamHandle stream) = 0;

  /// True if the operation that was begun (at first: the connection) is enqueued. Throws an error
  /// that the library has found since, on this rank or another; after that only abort() may be
  /// called.
  virtual bool ready() = 0;
  /// Ends the operation in progress, also on the device. No other call is allowed afterwards.
  virtual void abort() noexcept = 0;
};

}  // namespace penstock::gpu
