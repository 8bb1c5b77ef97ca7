// SPDX-License-Identifier: Apache-2.0
// The messages between workers and parameter servers, and between ranks that read each other's
// models: bytes in, values out. A message is a header of kHeaderBytes, followed by at most one
// frame of data.
//
//   0  u32 magic "PSPS"    4 u16 version    6 u16 kind
//   8  u32 key             12 u32 task      the part of the weights; the worker it is of
//   16 u64 step            24 u64 length    the update, or the number of a meeting; bytes of data
//   32 f32 learning_rate   36 f32 weight_decay   40 f32 gradient_clip   44 f32 gradient_scale
//   48 f64 value           56 u64 version of the part
//
// Little-endian and packed. Every message from outside is checked before use: parse_header checks
// the header, and the caller, who knows the state of the run, checks its meaning. Stateless: all
// functions may run on any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::cluster {

inline constexpr std::uint32_t kServerMagic = 0x53505350;  // "PSPS"
inline constexpr std::uint16_t kServerVersion = 1;
inline constexpr std::size_t kHeaderBytes = 64;
/// The maximum length of a frame: parts of weights are smaller, and peers that send more are
/// disconnected.
inline constexpr std::size_t kMaxFrame = std::size_t{64} << 20;

enum class MessageKind : std::uint16_t {
  hello = 1,  ///< worker: takes part; data: its list of the members of the run
  welcome,    ///< server: accepts the hello
  refused,    ///< server: rejects the hello; data: the reason
  beat,  ///< worker: still there; key: its RankPhase, step: the steps that it has begun. The server
         ///< answers with a beat
  gather,    ///< worker: a text for all workers; step: the number of the meeting
  gathered,  ///< server: the texts of all workers, see join_texts
  layout,    ///< worker 0: the weights, and the rule for gradients; data: see model_layout.h
  first,     ///< worker 0: the initial weights of a part; data: f32
  push,      ///< worker: gradients of a part; data: f32
  pull,      ///< worker: requests the weights of a part
  answer,    ///< server: to push and pull; data: f32
  lost,      ///< server: the run is over; data: the reason
  goodbye,   ///< worker: leaves; key: its exit code
  // Between ranks; key: the rank whose model is read, step: a number that the reply repeats.
  read_model,  ///< requests the newest model; data: the server's token
  model,       ///< version: of the model; data: f32
  no_model,    ///< the rank has published nothing
};
inline constexpr MessageKind kLastKind = MessageKind::no_model;

/// The layout on the wire: the members in this order, without gaps.
struct ServerHeader {
  std::uint32_t magic = kServerMagic;
  std::uint16_t protocol = kServerVersion;
  MessageKind kind = MessageKind::beat;
  std::uint32_t key = 0, task = 0;
  std::uint64_t step = 0, length = 0;
  float learning_rate = 0, weight_decay = 0, gradient_clip = 0, gradient_scale = 1;
  double value = 0;
  std::uint64_t version = 0;
};
static_assert(sizeof(ServerHeader) == kHeaderBytes && offsetof(ServerHeader, kind) == 6 &&
              offsetof(ServerHeader, task) == 12 && offsetof(ServerHeader, length) == 24 &&
              offsetof(ServerHeader, gradient_scale) == 44 && offsetof(ServerHeader, value) == 48 &&
              offsetof(ServerHeader, version) == 56);

std::array<std::byte, kHeaderBytes> to_bytes(const ServerHeader& header) noexcept;

/// Checks magic, version, kind, the length of the data, and that floats are finite. Throws
/// DataError with the field, its value and the expected value.
ServerHeader parse_header(std::span<const std::byte> header, std::size_t data_bytes);

/// Concatenates texts, each after its length in 32 bits.
std::string join_texts(std::span<const std::string> texts);
/// Throws DataError if `bytes` are not exactly `count` texts.
std::vector<std::string> split_texts(std::span<const std::byte> bytes, std::size_t count);

/// "push".
std::string_view to_string(MessageKind kind) noexcept;

inline std::string_view text_of(std::span<const std::byte> bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline std::span<const std::byte> bytes_of(std::string_view text) noexcept {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace penstock::cluster
