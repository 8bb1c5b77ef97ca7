// SPDX-License-Identifier: Apache-2.0
// Messages of every format, written by hand from the formats' descriptions
// (feeders/remote/messages.md) and from nothing of Penstock's: what its own writers and readers
// both have wrong shows here.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/transport/closed_form.h"

namespace penstock::transport {

using Bytes = std::vector<std::byte>;
using Message = std::vector<Bytes>;  // its frames

/// An array as NumPy has it, in C order.
struct Array {
  char kind = 'u';
  std::size_t bytes = 1;  // of an element
  bool big_endian = false;
  std::vector<std::int64_t> shape{};
  Bytes data{};
};

/// Changes the byte order of numbers of four bytes.
inline void reverse_each(Bytes& numbers) {
  for (auto at = numbers.begin(); at != numbers.end(); at += 4) std::reverse(at, at + 4);
}

enum class Format : std::uint8_t { zmq_op, pickle, msgpack, numpy_frames, framed };
inline constexpr Format kFormats[] = {Format::zmq_op, Format::pickle, Format::msgpack,
                                      Format::numpy_frames, Format::framed};
/// Those that hold any two arrays.
inline constexpr Format kArrayFormats[] = {Format::zmq_op, Format::pickle, Format::msgpack,
                                           Format::numpy_frames};
inline std::string name_of(Format format) {
  constexpr const char* kNames[] = {"zmq_op", "pickle", "msgpack", "numpy-frames", "framed"};
  return kNames[static_cast<std::size_t>(format)];
}

/// Appends numbers and texts.
class Writer {
 public:
  explicit Writer(Bytes& to) : to_(to) {}
  Writer& little(std::uint64_t value, std::size_t width) {
    for (std::size_t i = 0; i < width; ++i) to_.push_back(static_cast<std::byte>(value >> 8 * i));
    return *this;
  }
  Writer& big(std::uint64_t value, std::size_t width) {
    while (width-- > 0) to_.push_back(static_cast<std::byte>(value >> 8 * width));
    return *this;
  }
  Writer& text(std::string_view text) {
    for (const char c : text) to_.push_back(static_cast<std::byte>(c));
    return *this;
  }
  Writer& bytes(std::span<const std::byte> bytes) {
    to_.insert(to_.end(), bytes.begin(), bytes.end());
    return *this;
  }

 private:
  Bytes& to_;
};

inline Array pixels_array(const BatchSpec& spec, BatchName name) {
  return {.shape = {spec.images, spec.image.height, spec.image.width, spec.image.channels},
          .data = pixels_of(spec, name)};
}
inline Array labels_array(const BatchSpec& spec, BatchName name, bool big_endian = false) {
  Array array{.kind = 'i', .bytes = 4, .big_endian = big_endian, .shape = {spec.images}};
  for (std::int32_t index = 0; index < spec.images; ++index) {
    Writer(array.data).little(static_cast<std::uint64_t>(label_of(spec, name, index)), 4);
  }
  if (big_endian) reverse_each(array.data);
  return array;
}

namespace by_hand {

/// As TensorFlow numbers types.
inline std::uint64_t tensorflow_type(const Array& array) {
  if (array.kind == 'f') return array.bytes == 4 ? 1 : 2;
  if (array.kind == 'u') return 4;
  return array.bytes == 8 ? 9 : 3;
}

/// "<i4", "|u1".
inline std::string short_type(const Array& array) {
  const char order = array.bytes == 1 ? '|' : array.big_endian ? '>' : '<';
  return {order, array.kind, static_cast<char>('0' + array.bytes)};
}

inline void zmq_op(Writer& to, const Array& array) {
  to.little(tensorflow_type(array), 4).little(array.shape.size(), 4);
  for (const std::int64_t length : array.shape) to.little(static_cast<std::uint64_t>(length), 4);
  to.little(array.data.size(), 8).bytes(array.data);
}

/// numpy.core.numeric._frombuffer(bytearray, dtype, shape, 'C'), without memos.
inline void pickle(Writer& to, const Array& array) {
  const auto short_text = [&](std::string_view text) {
    to.text("\x8c").little(text.size(), 1).text(text);
  };
  short_text("numpy.core.numeric");
  short_text("_frombuffer");
  to.text("\x93(\x96").little(array.data.size(), 8).bytes(array.data);
  short_text("numpy");
  short_text("dtype");
  to.text("\x93");
  short_text(short_type(array).substr(1));
  to.text("\x89\x88\x87R(K\x03");
  short_text(short_type(array).substr(0, 1));
  to.text("NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK").little(0, 1).text("tb(");
  for (const std::int64_t length : array.shape) {
    to.text("J").little(static_cast<std::uint64_t>(length), 4);
  }
  to.text("t");
  short_text("C");
  to.text("tR");
}

/// {b'nd': True, b'type': '<i4', b'kind': b'', b'shape': [...], b'data': b'...'}.
inline void msgpack(Writer& to, const Array& array) {
  const auto key = [&](std::string_view name) { to.text("\xc4").big(name.size(), 1).text(name); };
  to.text("\x85");
  key("nd");
  to.text("\xc3");
  key("type");
  to.text("\xa3").text(short_type(array));
  key("kind");
  to.text("\xc4").big(0, 1);
  key("shape");
  to.big(0x90 + array.shape.size(), 1);
  for (const std::int64_t length : array.shape) {
    to.text("\xce").big(static_cast<std::uint64_t>(length), 4);
  }
  key("data");
  to.text("\xc6").big(array.data.size(), 4).bytes(array.data);
}

inline std::string json(const Array& array) {
  std::string text = R"({"dtype": ")" + short_type(array) + R"(", "shape": [)";
  for (std::size_t i = 0; i < array.shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(array.shape[i]);
  }
  return text + "]}";
}

}  // namespace by_hand

/// In one of kArrayFormats.
inline Message write(Format format, const Array& pixels, const Array& labels) {
  Message frames(1);
  Writer to(frames[0]);
  switch (format) {
    case Format::zmq_op:
      to.little(2, 4);
      by_hand::zmq_op(to, pixels);
      by_hand::zmq_op(to, labels);
      break;
    case Format::pickle:
      to.text("\x80\x05](");
      by_hand::pickle(to, pixels);
      by_hand::pickle(to, labels);
      to.text("e.");
      break;
    case Format::msgpack:
      to.text("\x92");
      by_hand::msgpack(to, pixels);
      by_hand::msgpack(to, labels);
      break;
    case Format::numpy_frames:
      to.text("[").text(by_hand::json(pixels)).text(", ").text(by_hand::json(labels)).text("]");
      frames.push_back(pixels.data);
      frames.push_back(labels.data);
      break;
    case Format::framed:
      ADD_FAILURE() << "framed messages have headers of their own";
  }
  return frames;
}

/// A framed header (feeders/remote/framed_format.md), field by field.
struct FramedFields {
  std::uint64_t version = 1, kind = 1, encoding = 1, flags = 0;
  std::uint64_t producer = 0, sequence = 0;
  std::int64_t begun = 0, ready = 0, sent = 0;
  std::uint64_t images = 0, height = 0, width = 0, channels = 0;
  std::uint64_t checksum = 0, reserved = 0, payload = 0, images_before = 0;
};
inline FramedFields framed_fields(const BatchSpec& spec, BatchName name) {
  const auto images = static_cast<std::uint64_t>(spec.images);
  return {.producer = 0x9e3779b97f4a7c15U + static_cast<std::uint64_t>(name.producer),
          .sequence = static_cast<std::uint64_t>(name.batch),
          .images = images,
          .height = static_cast<std::uint64_t>(spec.image.height),
          .width = static_cast<std::uint64_t>(spec.image.width),
          .channels = static_cast<std::uint64_t>(spec.image.channels),
          .images_before = images * static_cast<std::uint64_t>(name.batch)};
}
inline Bytes framed_header(const FramedFields& fields) {
  Bytes bytes;
  Writer to(bytes);
  to.text("PENSTOCK").little(fields.version, 2).little(fields.kind, 2).little(fields.encoding, 2);
  to.little(fields.flags, 2).little(fields.producer, 8).little(fields.sequence, 8);
  for (const std::int64_t time : {fields.begun, fields.ready, fields.sent}) {
    to.little(static_cast<std::uint64_t>(time), 8);
  }
  to.little(fields.images, 4).little(fields.height, 4).little(fields.width, 4);
  to.little(fields.channels, 4).little(fields.checksum, 4).little(fields.reserved, 4);
  to.little(fields.payload, 8).little(fields.images_before, 8);
  return bytes;
}
/// CRC32C of frames, one after the other, a bit at a time.
inline std::uint64_t crc32c_of(std::span<const Bytes> frames) {
  std::uint32_t sum = ~std::uint32_t{0};
  for (const Bytes& frame : frames) {
    for (const std::byte byte : frame) {
      sum ^= std::to_integer<std::uint32_t>(byte);
      for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ ((sum & 1) != 0 ? 0x82f63b78U : 0U);
    }
  }
  return static_cast<std::uint32_t>(~sum);
}
/// With `payload` and, with flag 1, the checksum of what follows the header.
inline Message framed_message(FramedFields fields, Message frames) {
  for (const Bytes& frame : frames) fields.payload += frame.size();
  if ((fields.flags & 1) != 0) fields.checksum = crc32c_of(frames);
  frames.insert(frames.begin(), framed_header(fields));
  return frames;
}
inline Message message_of(Format format, const BatchSpec& spec, BatchName name) {
  if (format == Format::framed) {
    FramedFields fields = framed_fields(spec, name);
    fields.flags = name.batch % 2 == 0 ? 0 : 1;  // every other with a checksum
    return framed_message(fields, {pixels_of(spec, name), labels_array(spec, name).data});
  }
  return write(format, pixels_array(spec, name), labels_array(spec, name));
}

inline std::int64_t bytes_of(const Message& message) {
  std::int64_t bytes = 0;
  for (const Bytes& frame : message) bytes += static_cast<std::int64_t>(frame.size());
  return bytes;
}

}  // namespace penstock::transport
