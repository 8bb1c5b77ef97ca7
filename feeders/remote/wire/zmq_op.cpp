// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/wire/zmq_op.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "feeders/pixel_options.h"

namespace penstock::remote {
namespace {

static_assert(std::endian::native == std::endian::little, "zmq_op travels in native byte order");

struct TypeRow {
  WireType type;
  std::string_view name;
  std::size_t bytes;
};

constexpr TypeRow kTypes[] = {
    {WireType::f32, "float32", 4},   {WireType::f64, "float64", 8},
    {WireType::i32, "int32", 4},     {WireType::u8, "uint8", 1},
    {WireType::i16, "int16", 2},     {WireType::i8, "int8", 1},
    {WireType::c64, "complex64", 8}, {WireType::i64, "int64", 8},
    {WireType::boolean, "bool", 1},  {WireType::bf16, "bfloat16", 2},
    {WireType::u16, "uint16", 2},    {WireType::c128, "complex128", 16},
    {WireType::f16, "float16", 2},   {WireType::u32, "uint32", 4},
    {WireType::u64, "uint64", 8},
};

/// Throws a DataError such as "zmq_op message, tensor 1 at byte 40: ndim is 9; expected 0 to 8".
[[noreturn]] void refuse(std::size_t tensor, std::size_t offset, const std::string& what) {
  throw DataError("zmq_op message, tensor {} at byte {}: {}", tensor, offset, what);
}

/// Reads from the front of a message, never past its end.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> message) : message_(message) {}

  std::size_t offset() const noexcept { return offset_; }
  std::size_t left() const noexcept { return message_.size() - offset_; }

  template <typename Integer>
  Integer integer(std::size_t tensor, const char* field) {
    if (left() < sizeof(Integer)) {
      refuse(tensor, offset_,
             fmt::format("{} is cut off: {} bytes are left; expected {}", field, left(),
                         sizeof(Integer)));
    }
    Integer value;
    std::memcpy(&value, message_.data() + offset_, sizeof value);
    offset_ += sizeof value;
    return value;
  }

  /// `bytes` must be at most left().
  std::span<const std::byte> take(std::size_t bytes) {
    const std::span<const std::byte> view = message_.subspan(offset_, bytes);
    offset_ += bytes;
    return view;
  }

 private:
  std::span<const std::byte> message_;
  std::size_t offset_ = 0;
};

/// Sets the size in bytes of a tensor with these dimensions; false if a message cannot hold it.
bool data_bytes(const WireTensor& tensor, std::uint64_t& bytes) {
  bytes = size_of(tensor.type);
  for (const std::int32_t dim : tensor.shape()) {
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(dim), &bytes)) return false;
  }
  return bytes <= static_cast<std::uint64_t>(INT64_MAX);
}

WireTensor parse_tensor(Reader& reader, std::size_t index) {
  WireTensor tensor;
  tensor.offset = reader.offset();
  std::size_t at = reader.offset();
  const auto type = reader.integer<std::int32_t>(index, "dtype");
  tensor.type = static_cast<WireType>(type);
  if (size_of(tensor.type) == 0) {
    refuse(index, at,
           fmt::format(
               "dtype is {}; expected a number of TensorFlow's, such as 4 (uint8) or 3 (int32)",
               type));
  }
  at = reader.offset();
  const auto dimensions = reader.integer<std::int32_t>(index, "ndim");
  if (dimensions < 0 || dimensions > static_cast<std::int32_t>(WireTensor::kMaxDimensions)) {
    refuse(index, at,
           fmt::format("ndim is {}; expected 0 to {}", dimensions, WireTensor::kMaxDimensions));
  }
  tensor.dimensions = static_cast<std::size_t>(dimensions);
  for (std::size_t i = 0; i < tensor.dimensions; ++i) {
    at = reader.offset();
    tensor.dims[i] = reader.integer<std::int32_t>(index, "a dimension");
    if (tensor.dims[i] <= 0) {
      refuse(index, at, fmt::format("dimension {} is {}; expected at least 1", i, tensor.dims[i]));
    }
  }
  at = reader.offset();
  const auto bytes = reader.integer<std::int64_t>(index, "nbytes");
  std::uint64_t expected = 0;
  if (!data_bytes(tensor, expected)) {
    refuse(index, tensor.offset, "its dimensions multiply to more than 2^63 bytes");
  }
  if (bytes < 0 || static_cast<std::uint64_t>(bytes) != expected) {
    refuse(
        index, at,
        fmt::format("nbytes is {}; expected {}, the product of its dimensions and the size of {}",
                    bytes, expected, to_string(tensor.type)));
  }
  if (expected > reader.left()) {
    refuse(
        index, at,
        fmt::format("nbytes is {}; only {} bytes are left in the message", bytes, reader.left()));
  }
  tensor.data = reader.take(static_cast<std::size_t>(expected));
  return tensor;
}

std::string describe(WireType type, std::span<const std::int32_t> dims) {
  if (dims.empty()) return fmt::format("{} scalar", to_string(type));
  return fmt::format("{} [{}]", to_string(type), fmt::join(dims, ","));
}

std::string describe(const WireMessage& message) {
  std::string text;
  for (std::size_t i = 0; i < message.tensors; ++i) {
    if (i > 0) text += " and ";
    text += describe(message.tensor[i].type, message.tensor[i].shape());
  }
  return text;
}

constexpr std::pair<DType, WireType> kPixelTypes[] = {{DType::u8, WireType::u8},
                                                      {DType::f16, WireType::f16},
                                                      {DType::bf16, WireType::bf16},
                                                      {DType::f32, WireType::f32}};

WireType wire_type_of(DType pixel) noexcept {
  for (const auto& [known, type] : kPixelTypes) {
    if (known == pixel) return type;
  }
  return WireType::u8;
}

std::optional<DType> dtype_of(WireType type) noexcept {
  for (const auto& [pixel, known] : kPixelTypes) {
    if (known == type) return pixel;
  }
  return std::nullopt;
}

template <typename Integer>
std::byte* put(std::byte* to, Integer value) {
  std::memcpy(to, &value, sizeof value);
  return to + sizeof value;
}

}  // namespace

std::string_view to_string(WireType type) {
  for (const TypeRow& row : kTypes) {
    if (row.type == type) return row.name;
  }
  return "?";
}

std::size_t size_of(WireType type) noexcept {
  for (const TypeRow& row : kTypes) {
    if (row.type == type) return row.bytes;
  }
  return 0;
}

WireMessage parse_zmq_op(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  if (bytes.size() < sizeof(std::int32_t)) {
    throw DataError("zmq_op message of {} bytes; expected at least the 4 of its tensor count",
                    bytes.size());
  }
  const auto tensors = reader.integer<std::int32_t>(0, "tensor count");
  if (tensors < 1 || tensors > static_cast<std::int32_t>(WireMessage::kMaxTensors)) {
    throw DataError(
        "zmq_op message of {} bytes: its tensor count at byte 0 is {}; expected 1 to {}; is the "
        "producer's format zmq_op?",
        bytes.size(), tensors, WireMessage::kMaxTensors);
  }
  WireMessage message;
  message.tensors = static_cast<std::size_t>(tensors);
  for (std::size_t i = 0; i < message.tensors; ++i) message.tensor[i] = parse_tensor(reader, i);
  if (reader.left() > 0) {
    throw DataError(
        "zmq_op message of {} bytes: {} bytes follow its last tensor at byte {}; expected none",
        bytes.size(), reader.left(), reader.offset());
  }
  return message;
}

WireBatch as_batch(const WireMessage& message, const BatchSpec& spec) {
  const std::array<std::int32_t, 4> shape = pixel_lengths(spec);
  const WireType type = wire_type_of(spec.pixel);
  const std::span labels_shape = std::span(shape).first(1);
  const WireTensor &pixels = message.tensor[0], &labels = message.tensor[1];
  const bool wide = labels.type == WireType::i64;
  if (message.tensors != 2 || pixels.type != type || !std::ranges::equal(pixels.shape(), shape) ||
      (labels.type != WireType::i32 && !wide) ||
      !std::ranges::equal(labels.shape(), labels_shape)) {
    std::string text = fmt::format("zmq_op message holds {}; expected {} and {}", describe(message),
                                   describe(type, shape), describe(WireType::i32, labels_shape));
    if (message.tensors != 2) throw DataError(text);
    const auto dims = pixels.shape();
    refuse_pixels(text, dtype_of(pixels.type), std::vector<std::int64_t>(dims.begin(), dims.end()),
                  spec);
  }
  const values::NumpyType label_type{.kind = 'i', .bytes = static_cast<std::uint8_t>(wide ? 8 : 4)};
  const WireBatch batch{pixels.data, labels.data, label_type};
  check_labels(batch, spec, "zmq_op message");
  return batch;
}

std::size_t write_tensor_header(std::span<std::byte> to, WireType type,
                                std::span<const std::int32_t> dims) {
  PENSTOCK_ASSERT(to.size() >= 16 + dims.size_bytes());
  auto bytes = static_cast<std::int64_t>(size_of(type));
  std::byte* end = put(to.data(), static_cast<std::int32_t>(type));
  end = put(end, static_cast<std::int32_t>(dims.size()));
  for (const std::int32_t dim : dims) {
    end = put(end, dim);
    bytes *= dim;
  }
  end = put(end, bytes);
  return static_cast<std::size_t>(end - to.data());
}

BatchLayout::BatchLayout(const BatchSpec& spec, std::int32_t images) noexcept
    : type_(wire_type_of(spec.pixel)),
      shape_(pixel_lengths(spec)),
      pixel_bytes_(spec.row_bytes() * static_cast<std::size_t>(images)),
      label_bytes_(sizeof(std::int32_t) * static_cast<std::size_t>(images)) {
  shape_[0] = images;
}

void BatchLayout::write_headers(std::span<std::byte> message) const {
  put(message.data(), std::int32_t{2});
  write_tensor_header(message.subspan(sizeof(std::int32_t)), type_, shape_);
  write_tensor_header(message.subspan(kPixelsAt + pixel_bytes_), WireType::i32,
                      std::span(shape_).first(1));
}

}  // namespace penstock::remote
