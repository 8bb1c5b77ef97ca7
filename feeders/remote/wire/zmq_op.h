// SPDX-License-Identifier: Apache-2.0
// Parses tensorpack's zmq_op message into views. Copies nothing, and allocates nothing unless the
// message is refused.
//
//   message := int32 N, then N tensors
//   tensor  := int32 type, int32 ndim, ndim x int32 dim, int64 nbytes, nbytes of row-major data
//
// Integers are little-endian and packed. There is no magic number, version, checksum or end of
// stream. Every length is checked before use. Stateless: any thread may call any function.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "dataflow/batch.h"
#include "feeders/remote/wire/wire_batch.h"

namespace penstock::remote {

/// Element types by their number on the wire, as in TensorFlow's DataType.
enum class WireType : std::int32_t {
  f32 = 1,
  f64 = 2,
  i32 = 3,
  u8 = 4,
  i16 = 5,
  i8 = 6,
  c64 = 8,
  i64 = 9,
  boolean = 10,
  bf16 = 14,
  u16 = 17,
  c128 = 18,
  f16 = 19,
  u32 = 22,
  u64 = 23,
};

/// One tensor of a message. Valid while the message's bytes are.
struct WireTensor {
  static constexpr std::size_t kMaxDimensions = 8;  ///< as in tensorpack's reader

  WireType type = WireType::u8;
  std::size_t dimensions = 0;
  std::array<std::int32_t, kMaxDimensions> dims{};
  std::span<const std::byte> data;
  std::size_t offset = 0;  ///< of its first field in the message

  std::span<const std::int32_t> shape() const noexcept { return std::span(dims).first(dimensions); }
};

struct WireMessage {
  static constexpr std::size_t kMaxTensors = 8;  ///< our limit; a batch has two

  std::size_t tensors = 0;
  std::array<WireTensor, kMaxTensors> tensor{};
};

/// Parses a message. Throws DataError with the field, its value, what was expected, and the offset.
WireMessage parse_zmq_op(std::span<const std::byte> message);

/// Checks that `message` is one whole batch of `spec`: pixels of its type and layout, and labels,
/// i32 or i64 [N]. Throws DataError with the expected and the found shapes.
WireBatch as_batch(const WireMessage& message, const BatchSpec& spec);

/// Writes what precedes a tensor's data: type, dimensions and nbytes. Returns its length, 16 bytes
/// plus 4 per dimension, for which `to` must have room.
std::size_t write_tensor_header(std::span<std::byte> to, WireType type,
                                std::span<const std::int32_t> dims);

/// Offsets of the parts of a message with `images` images, and a function to write its headers:
///
///   [header][pixels][header][labels i32]
class BatchLayout {
 public:
  /// `images` is at most spec.images: the last batch of a finite pass is smaller.
  BatchLayout(const BatchSpec& spec, std::int32_t images) noexcept;

  static constexpr std::size_t kPixelsAt = 36;      ///< bytes before the pixels
  static constexpr std::size_t kLabelsHeader = 20;  ///< bytes between pixels and labels

  std::size_t labels_at() const noexcept { return kPixelsAt + pixel_bytes_ + kLabelsHeader; }
  std::size_t size() const noexcept { return labels_at() + label_bytes_; }

  /// Writes both headers into a message of size() bytes that already holds pixels and labels.
  void write_headers(std::span<std::byte> message) const;

 private:
  WireType type_;
  std::array<std::int32_t, 4> shape_;
  std::size_t pixel_bytes_, label_bytes_;
};

/// Such as "uint8" or "int64"; "?" if unknown.
std::string_view to_string(WireType type);

/// Bytes of one element; 0 if unknown.
std::size_t size_of(WireType type) noexcept;

}  // namespace penstock::remote
