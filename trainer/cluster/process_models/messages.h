// SPDX-License-Identifier: Apache-2.0
// The messages with which processes read each other's models. A request is one frame. A reply is
// this header and, if there is a model, a frame with its elements as f32. Numbers are in host byte
// order: the ranks have already checked that they run the same program.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>

namespace penstock::cluster {

/// libzmq's limit of a message's length also counts handshakes and encryption overhead, some
/// hundred bytes. Limits are larger than the payload by this much.
inline constexpr std::size_t kTransportBytes = 4096;

/// A server draws it at its start and tells it only to the processes of the run. A request without
/// it gets no answer.
using ModelToken = std::array<std::uint8_t, 16>;

struct ModelRequest {
  static constexpr std::uint32_t kMagic = 0x71526d50;
  std::uint32_t magic = kMagic;
  std::int32_t owner = 0;    ///< the rank whose model is requested
  std::uint64_t number = 0;  ///< the reply repeats it
  ModelToken token{};
};

struct ModelReply {
  static constexpr std::uint32_t kMagic = 0x70526d50;
  static constexpr std::int64_t kNone = -1;
  std::uint32_t magic = kMagic;
  std::int32_t owner = 0;
  std::uint64_t number = 0;
  std::int64_t version = kNone;  ///< kNone: the owner has published nothing, and no frame follows
  std::uint64_t elements = 0;
};

/// Parses a message of that type from a frame's bytes; nothing: the bytes are no such message.
template <typename Message>
std::optional<Message> parse_model_message(std::span<const std::byte> bytes) {
  static_assert(std::is_trivially_copyable_v<Message>);
  if (bytes.size() != sizeof(Message)) return std::nullopt;
  Message message;
  std::memcpy(&message, bytes.data(), bytes.size());
  if (message.magic != Message::kMagic) return std::nullopt;
  return message;
}

}  // namespace penstock::cluster
