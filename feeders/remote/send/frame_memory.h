// SPDX-License-Identifier: Apache-2.0
// Memory of rings whose slots are sent, or lent, without a copy. Both classes use the streams and
// events of a host device, which outlives them; they outlive what they allocate.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "dataflow/device.h"
#include "dataflow/net/shared_memory/shared_pool.h"

namespace penstock::remote {

/// For batches that are sent: each slot has extra room before and after what the ring sees.
class FrameMemory final : public Device {
 public:
  /// Room before the pixels, which keeps them aligned as Device::allocate promises, and room after
  /// the labels.
  static constexpr std::size_t kLead = 4096, kTail = 512;

  explicit FrameMemory(Device& host) : host_(host) {}
  Buffer allocate(std::size_t bytes, MemoryKind) override;
  std::unique_ptr<Stream> make_stream() override { return host_.make_stream(); }
  std::unique_ptr<Event> make_event() override { return host_.make_event(); }

 private:
  Device& host_;
  std::vector<Buffer> blocks_;
};

/// For batches that consumers on the same machine read without a copy. Each slot has room at its
/// end to move its labels to the next multiple of 64, where consumers expect them.
class SharedFrameMemory final : public Device {
 public:
  /// For `slots` allocations of at most `slot_bytes` each. Throws DeviceError.
  SharedFrameMemory(Device& host, std::size_t slot_bytes, std::size_t slots)
      : host_(host), pool_(slot_bytes + kFrameAlignment, slots) {}
  static constexpr std::size_t kFrameAlignment = 64;

  Buffer allocate(std::size_t bytes, MemoryKind) override;
  std::unique_ptr<Stream> make_stream() override { return host_.make_stream(); }
  std::unique_ptr<Event> make_event() override { return host_.make_event(); }
  const net::SharedPool& pool() const noexcept { return pool_; }

 private:
  Device& host_;
  net::SharedPool pool_;
  std::size_t allocated_ = 0;
};

}  // namespace penstock::remote
