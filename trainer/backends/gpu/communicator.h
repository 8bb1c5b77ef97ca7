// SPDX-License-Identifier: Apache-2.0
// One rank's end of what a vendor's library connects GPUs by, of one process or of many. Without a
// vendor's header, as driver.h.
//
// Nothing here blocks: what was begun is under way until ready() says that it is done, and nothing
// else may be begun before. Errors are DeviceError, with the library's call and its text.
// Thread-safety: one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "dataflow/batch.h"

namespace penstock::gpu {

using StreamHandle = struct StreamTag*;

/// What ranks know each other by: one of them makes it, and it is handed to all.
struct CommunicatorId {
  std::array<std::byte, 128> bytes{};
};

/// Which of how many, over all processes.
struct CommunicatorPlace {
  std::int32_t rank = 0, size = 1;
};

class Communicator {
 public:
  /// Aborts what is under way.
  virtual ~Communicator() = default;

  /// Elements in device memory become the sum over all ranks, in place: the same bits on each, in
  /// an order of additions that is the library's. They are of `type`, f32, f16 or bf16; the other
  /// calls move f32.
  virtual void all_reduce(void* data, DType type, std::size_t count, StreamHandle stream) = 0;
  /// Those of the root become that sum.
  virtual void reduce(float* data, std::size_t count, std::int32_t root, StreamHandle stream) = 0;
  /// Those of all ranks become the root's.
  virtual void broadcast(float* data, std::size_t count, std::int32_t root,
                         StreamHandle stream) = 0;

  /// Whether what was begun (the connection at first) has been enqueued. Throws what the library
  /// has found since, also on other ranks' account; then only abort() is left.
  virtual bool ready() = 0;
  /// Ends what is under way, also on the device; nothing else may be called afterwards.
  virtual void abort() noexcept = 0;
};

}  // namespace penstock::gpu
