// SPDX-License-Identifier: Apache-2.0
// What processes say to each other where they read each other's models. A request is one frame, a
// reply this header and, where there is a model, a frame with its elements as f32. Numbers lie as
// the host has them: ranks have compared their programs before.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>

namespace penstock {

/// libzmq's limit of a message's length holds for handshakes and for what encryption adds, too,
/// which take some hundred bytes: limits are so much above what is sent.
inline constexpr std::size_t kTransportBytes = 4096;

/// Drawn by a server at its start and told to the run's processes alone: who does not know it gets
/// no answer.
using ModelToken = std::array<std::uint8_t, 16>;

struct ModelRequest {
  static constexpr std::uint32_t kMagic = 0x71526d50;
  std::uint32_t magic = kMagic;
  std::int32_t owner = 0;    ///< the rank whose model is wanted
  std::uint64_t number = 0;  ///< comes back in the reply
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

/// A message of that kind out of a frame's bytes; nothing: these are none.
template <typename Message>
std::optional<Message> parse_model_message(std::span<const std::byte> bytes) {
  static_assert(std::is_trivially_copyable_v<Message>);
  if (bytes.size() != sizeof(Message)) return std::nullopt;
  Message message;
  std::memcpy(&message, bytes.data(), bytes.size());
  if (message.magic != Message::kMagic) return std::nullopt;
  return message;
}

}  // namespace penstock
