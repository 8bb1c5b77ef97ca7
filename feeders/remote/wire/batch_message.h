// SPDX-License-Identifier: Apache-2.0
// Batches out of messages of every format that producers send: which format it is, by the first
// bytes, and the batch in it.
//
//   zmq_op        tensorpack's; one frame (zmq_op.h)
//   pickle        a list [pixels, labels] of NumPy arrays, protocols 2 to 5; nothing is executed
//   msgpack       the same by msgpack and msgpack-numpy
//   numpy-frames  a header and the arrays' bytes, a frame each (numpy_frames.h)
//   framed        Penstock's own: a header of 96 bytes, the pixels, the labels (framed.h)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "dataflow/batch.h"
#include "dataflow/wire/value_tree.h"
#include "dataflow/wire/wire_batch.h"

namespace penstock {

enum class MessageFormat : std::uint8_t { zmq_op, pickle, msgpack, numpy_frames, framed };

/// More frames than this are no batch of any format.
inline constexpr std::size_t kMaxMessageFrames = 4;

/// "numpy-frames".
std::string_view to_string(MessageFormat format) noexcept;
/// By its name; "zmq_ops" is another name of zmq_op. Empty: there is none of that name.
std::optional<MessageFormat> message_format_of(std::string_view name);
/// What a message's first bytes and number of frames say. Bytes that say nothing are zmq_op's,
/// which has no mark of its own.
MessageFormat detect_message_format(MessageFrames frames) noexcept;

/// One thread at a time.
class BatchMessageReader {
 public:
  explicit BatchMessageReader(const BatchSpec& spec) : spec_(spec) {}

  /// The batch of a message, its labels checked; valid until the next call and while the frames
  /// are. Throws DataError with what was found and what was expected. Of a framed message it is the
  /// batch of pixels that its own frames hold.
  WireBatch read(MessageFormat format, MessageFrames frames);

 private:
  const BatchSpec spec_;
  ValueTree tree_;  // holds what a pickle does not have as plain bytes
};

}  // namespace penstock
