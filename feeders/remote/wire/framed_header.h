// SPDX-License-Identifier: Apache-2.0
// The first frame of every message of Penstock's own format (feeders/remote/framed_format.md): 96
// bytes, little-endian, each field aligned to its size. It depends on no other part of Penstock,
// because the library for producers uses it too. Stateless: any thread may call any function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace penstock::remote {

/// Kind of a message. Below 16: from producers; from 16: to producers.
enum class FramedKind : std::uint16_t {
  batch = 1,
  hello = 2,
  end = 3,
  welcome = 16,
  credit = 17,
  refusal = 18,
};

/// Encoding of the payload of a batch.
enum class FramedEncoding : std::uint16_t {
  none = 0,
  pixels = 1,  ///< of the type and layout that the header says
  jpeg = 2,    ///< image files, which the consumer decodes
  arrays = 3,  ///< bytes of arrays that are no images
};

/// Type of pixels on the wire.
enum class FramedPixel : std::uint8_t { u8 = 0, f32 = 1, f16 = 2, bf16 = 3 };

/// Bits of FramedHeader::flags; all others must be 0.
inline constexpr std::uint16_t kFramedChecksum = 1;  ///< `checksum` is set
inline constexpr std::uint16_t kFramedShared = 2;    ///< the payload lies in shared memory

struct FramedHeader {
  FramedKind kind = FramedKind::batch;
  FramedEncoding encoding = FramedEncoding::none;
  std::uint16_t flags = 0;
  std::uint64_t producer = 0;       ///< drawn at random when the producer starts; never 0
  std::uint64_t sequence = 0;       ///< of a batch, from 0; of an end, the number of batches
  std::uint64_t images_before = 0;  ///< in the producer's earlier batches
  // Times by the producer's CLOCK_REALTIME, in ns since 1970; 0: not known.
  std::int64_t begun_ns = 0;                          ///< work on this batch began
  std::int64_t ready_ns = 0;                          ///< the batch was complete
  std::int64_t sent_ns = 0;                           ///< the socket accepted it
  std::uint32_t images = 0;                           ///< N, or samples of a batch of arrays
  std::uint32_t height = 0, width = 0, channels = 0;  ///< 0 if each image has its own size
  std::uint32_t checksum = 0;  ///< CRC32C of all frames after this one, in their order
  FramedPixel pixel = FramedPixel::u8;
  std::uint8_t planar = 0;          ///< 1: pixels are NCHW; 0: NHWC
  std::uint64_t payload_bytes = 0;  ///< of all frames after this one

  bool operator==(const FramedHeader&) const = default;
};

inline constexpr std::size_t kFramedHeaderBytes = 96;
inline constexpr std::uint16_t kFramedVersion = 1;
/// Longest text of a hello, a welcome or a refusal, in bytes.
inline constexpr std::size_t kMaxFramedText = 4096;

/// This machine's CLOCK_REALTIME, in ns since 1970.
std::int64_t wall_clock_ns() noexcept;
/// A random number for a producer; never 0.
std::uint64_t draw_producer_number();

void write_framed_header(std::span<std::byte, kFramedHeaderBytes> to,
                         const FramedHeader& header) noexcept;

/// Whether a frame begins like one of this format, of any version.
bool begins_as_framed(std::span<const std::byte> frame) noexcept;
/// The version in such a frame; 0: the frame is too short.
std::uint16_t framed_version(std::span<const std::byte> frame) noexcept;

/// Empty: the frame is not 96 bytes of this version, or a reserved byte is not 0. Checks nothing
/// else: kinds, encodings, flags and numbers may have any value.
std::optional<FramedHeader> read_framed_header(std::span<const std::byte> frame) noexcept;

}  // namespace penstock::remote
