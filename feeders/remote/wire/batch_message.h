// SPDX-License-Identifier: Apache-2.0
// Detects the format of a producer's message by its first bytes, and reads the batch in it.
//
//   zmq_op        tensorpack's; one frame (zmq_op.h)
//   pickle        a list [pixels, labels] of NumPy arrays, protocols 2 to 5; nothing is executed
//   msgpack       the same by msgpack and msgpack-numpy
//   numpy-frames  a header in JSON and the arrays' bytes, a frame each
//   framed        Penstock's own: a header of 96 bytes, the pixels, the labels (framed.h)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "dataflow/batch.h"
#include "dataflow/values/value_tree.h"
#include "feeders/remote/wire/wire_batch.h"

namespace penstock::remote {

enum class MessageFormat : std::uint8_t { zmq_op, pickle, msgpack, numpy_frames, framed };

/// A message with more frames is not a batch of any format.
inline constexpr std::size_t kMaxMessageFrames = 4;

/// Name of the format, such as "numpy-frames".
std::string_view to_string(MessageFormat format) noexcept;
/// The format with that name; "zmq_ops" also means zmq_op. Empty: unknown name.
std::optional<MessageFormat> message_format_of(std::string_view name);
/// As above, but throws ConfigError with `what`, the name of the flag or option. `before`: values
/// that the caller also takes, such as "auto, ".
MessageFormat parse_message_format(std::string_view name, std::string_view what,
                                   std::string_view before = "");
/// Detects the format by the first bytes and the number of frames. Unknown bytes count as zmq_op,
/// which has no magic number.
MessageFormat detect_message_format(MessageFrames frames) noexcept;

/// Thread-safety: one thread at a time.
class BatchMessageReader {
 public:
  explicit BatchMessageReader(const BatchSpec& spec) : spec_(spec) {}

  /// Returns the batch of a message, with checked labels. Valid until the next call and while the
  /// frames are. Throws DataError, which says what was found and what was expected. A framed
  /// message must hold the pixels in its own frames, not in shared memory.
  WireBatch read(MessageFormat format, MessageFrames frames);

 private:
  const BatchSpec spec_;
  values::ValueTree tree_;  // holds parts that a pickle does not store as plain bytes
};

}  // namespace penstock::remote
