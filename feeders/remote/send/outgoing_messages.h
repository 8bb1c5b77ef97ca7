// SPDX-License-Identifier: Apache-2.0
// Lays out batches of a ring as messages of each format: the frames of a message, most of which are
// bytes of the slot without a copy. ZmqPush sends them.
//
// Thread-safety: one thread at a time. Any thread may call give_back for a slot that is in use.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "dataflow/batch.h"
#include "dataflow/clock.h"
#include "feeders/remote/wire/batch_message.h"

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
  /// Restores what batch() moved in a slot, for the writers of the ring.
  virtual void give_back(const Batch&) noexcept {}
};

/// Supports zmq_op, numpy-frames and framed. Throws ConfigError for other formats, and for a
/// checksum if the format has none. The clock must be the ring's and outlive the returned object.
std::unique_ptr<OutgoingMessages> make_outgoing(MessageFormat format, const BatchSpec& spec,
                                                const Clock& clock, bool checksum = false);

/// For format framed. Draws a random producer number.
std::unique_ptr<OutgoingMessages> make_framed_outgoing(const BatchSpec& spec, const Clock& clock,
                                                       bool checksum);

}  // namespace penstock::remote
