// SPDX-License-Identifier: Apache-2.0
// How batches of a ring go out as messages, in each format: which frames a message has, most of
// them the bytes of a slot as they lie. Sockets are ZmqPush's.
//
// Thread-safety: one thread at a time, except for give_back, which any thread may call for slots
// that are out.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "dataflow/batch.h"
#include "dataflow/clock.h"
#include "dataflow/wire/batch_message.h"

namespace penstock {

/// A frame of a message. One in a slot is sent as it lies, and the slot is given back once all such
/// frames of the message are free; another is copied.
struct OutgoingFrame {
  std::span<std::byte> bytes;
  bool in_slot = false;
};

class OutgoingMessages {
 public:
  virtual ~OutgoingMessages() = default;

  // Frames are valid until the next call, at most kMaxMessageFrames.
  /// A message before the first batch; empty: there is none.
  virtual std::span<const OutgoingFrame> hello() { return {}; }
  /// The next batch, in FrameMemory, and when work on it began and it was ready. Lays the slot out.
  virtual std::span<const OutgoingFrame> batch(const Batch& batch, Time begun, Time ready) = 0;
  /// A message behind the last batch; empty: there is none.
  virtual std::span<const OutgoingFrame> end() { return {}; }

  /// The message that was asked for last is handed to a socket now: frames outside of slots may
  /// change.
  virtual void stamp() {}
  /// What batch() moved in a slot lies where the ring's writers expect it again.
  virtual void give_back(const Batch&) noexcept {}
};

/// Formats that are sent: zmq_op, numpy-frames and framed. Throws ConfigError for others, and for a
/// checksum where the format has none. The clock, which is the ring's, outlives it.
std::unique_ptr<OutgoingMessages> make_outgoing(MessageFormat format, const BatchSpec& spec,
                                                const Clock& clock, bool checksum = false);

/// Of `framed`, with a producer's number drawn at random.
std::unique_ptr<OutgoingMessages> make_framed_outgoing(const BatchSpec& spec, const Clock& clock,
                                                       bool checksum);

}  // namespace penstock
