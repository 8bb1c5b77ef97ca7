// SPDX-License-Identifier: Apache-2.0
// The first frame of every message of Penstock's own format, which feeders/README.md specifies:
// 96 bytes, little-endian, each field aligned to its size. It needs nothing of the rest of
// Penstock, since the library for producers is built of it too. Stateless: all functions may run on
// any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace penstock {

/// What a message is. From producers below 16, to producers from there on.
enum class FramedKind : std::uint16_t {
  batch = 1,
  hello = 2,
  end = 3,
  welcome = 16,
  credit = 17,
  refusal = 18,
};

/// What the payload of a batch is.
enum class FramedEncoding : std::uint16_t {
  none = 0,
  pixels = 1,  ///< u8, NHWC, RGB
  jpeg = 2,    ///< image files, which the consumer decodes
};

/// Of FramedHeader::flags; others are refused.
inline constexpr std::uint16_t kFramedChecksum = 1;  ///< `checksum` holds
inline constexpr std::uint16_t kFramedShared = 2;    ///< the payload lies in shared memory

struct FramedHeader {
  FramedKind kind = FramedKind::batch;
  FramedEncoding encoding = FramedEncoding::none;
  std::uint16_t flags = 0;
  std::uint64_t producer = 0;       ///< a random number of each producer's run, never 0
  std::uint64_t sequence = 0;       ///< of a batch, from 0; of an end, how many batches there were
  std::uint64_t images_before = 0;  ///< in the producer's batches up to here
  // By the producer's CLOCK_REALTIME, in ns since 1970; 0: not known.
  std::int64_t begun_ns = 0;                          ///< work on this batch began
  std::int64_t ready_ns = 0;                          ///< it was complete
  std::int64_t sent_ns = 0;                           ///< the socket took it
  std::uint32_t images = 0;                           ///< N
  std::uint32_t height = 0, width = 0, channels = 0;  ///< 0 where images have sizes of their own
  std::uint32_t checksum = 0;       ///< CRC32C of all frames behind this one, in their order
  std::uint64_t payload_bytes = 0;  ///< of all frames behind this one

  bool operator==(const FramedHeader&) const = default;
};

inline constexpr std::size_t kFramedHeaderBytes = 96;
inline constexpr std::uint16_t kFramedVersion = 1;
/// The longest text of a hello, a welcome or a refusal, in bytes.
inline constexpr std::size_t kMaxFramedText = 4096;

void write_framed_header(std::span<std::byte, kFramedHeaderBytes> to,
                         const FramedHeader& header) noexcept;

/// Does a frame begin as those of this format do, whatever its version?
bool begins_as_framed(std::span<const std::byte> frame) noexcept;
/// The version that such a frame says; 0: it is too short to say one.
std::uint16_t framed_version(std::span<const std::byte> frame) noexcept;

/// Empty: not 96 bytes of this version, or bytes that it reserves are not 0. Kinds, encodings,
/// flags and numbers are as they came: nothing else is checked.
std::optional<FramedHeader> read_framed_header(std::span<const std::byte> frame) noexcept;

}  // namespace penstock
