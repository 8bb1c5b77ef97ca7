// SPDX-License-Identifier: Apache-2.0
// Lays out batches as messages of each format: the frames of a message, most of which are bytes of
// the slot without a copy. A Sender sends them.
//
// Thread-safety: one thread at a time. Any thread may call give_back for a slot that is in use.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "dataflow/batch.h"
#include "dataflow/clock.h"
#include "dataflow/net/shared_memory/shared_pool.h"
#include "feeders/remote/wire/batch_message.h"
#include "feeders/remote/wire/framed.h"

namespace penstock::remote {

/// A frame of a message. A frame in a slot is sent without a copy, and the slot is given back when
/// all such frames of the message are free. Other frames are copied.
struct OutgoingFrame {
  std::span<std::byte> bytes;
  bool in_slot = false;
};

class OutgoingMessages {
 public:
  virtual ~OutgoingMessages() = default;

  // Returned frames are valid until the next call. At most kMaxMessageFrames.
  /// Message before the first batch; empty: none.
  virtual std::span<const OutgoingFrame> hello() { return {}; }
  /// Message for the next batch, which lies in FrameMemory. `begun` and `ready`: when work on it
  /// began and when it was complete. Changes the layout of the slot.
  virtual std::span<const OutgoingFrame> batch(const Batch& batch, Time begun, Time ready) = 0;
  /// Message after the last batch; empty: none.
  virtual std::span<const OutgoingFrame> end() { return {}; }

  /// Call when the last message goes to a socket now. May change frames outside of slots.
  virtual void stamp() {}
  /// The lease of the last batch, if it is lent in shared memory.
  virtual std::optional<std::uint64_t> lease() const { return std::nullopt; }
  /// Restores what batch() moved in a slot, for the writers of the ring.
  virtual void give_back(const Batch&) noexcept {}
};

/// Throws ConfigError for a checksum if the format has none, and for batches that are too large for
/// the format. The clock must be the ring's and outlive the returned object.
std::unique_ptr<OutgoingMessages> make_outgoing(MessageFormat format, const BatchSpec& spec,
                                                const Clock& clock, bool checksum = false);

/// Framed messages for credit: batches lie in `pool`, which is that of the SharedFrameMemory of the
/// ring, and messages hold their leases. The pool outlives the returned object.
std::unique_ptr<OutgoingMessages> make_lent_outgoing(const BatchSpec& spec, const Clock& clock,
                                                     const net::SharedPool& pool);

/// The messages of one producer in Penstock's own format: their numbers, times and checksums.
/// Returned frames are valid until the next call.
class FramedStream {
 public:
  /// Draws a random producer number.
  explicit FramedStream(bool checksum);

  /// `header`: encoding and shape of the batches. `pool`: names their shared memory; empty: none.
  std::span<const OutgoingFrame> hello(FramedHeader header, const std::string& name,
                                       const std::string& pool = {});
  /// `header`: encoding, flags, images, shape and times of the batch.
  std::span<const OutgoingFrame> batch(FramedHeader header, std::span<const OutgoingFrame> payload);
  std::span<const OutgoingFrame> end();

  /// Sets the time at which the last batch was complete.
  void is_ready(std::int64_t ready_ns) noexcept { current_.ready_ns = ready_ns; }
  /// Sets the time at which the last message is sent.
  void stamp() noexcept;

 private:
  std::span<const OutgoingFrame> message(FramedHeader header,
                                         std::span<const OutgoingFrame> payload);

  const bool checksum_;
  const std::uint64_t producer_;
  std::uint64_t batches_ = 0, images_ = 0;
  std::string text_;
  FramedHeader current_;  // of the last message
  std::array<std::byte, kFramedHeaderBytes> first_{};
  std::array<OutgoingFrame, 1 + kMaxFramedPayload> frames_;
};

}  // namespace penstock::remote
