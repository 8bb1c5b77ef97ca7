// SPDX-License-Identifier: Apache-2.0
// Messages of every format, written by hand from the formats' descriptions (feeders/README.md) and
// from nothing of Penstock's: what its own writers and readers both have wrong shows here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
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

enum class Format : std::uint8_t { zmq_op, pickle, msgpack, numpy_frames };
inline constexpr Format kFormats[] = {Format::zmq_op, Format::pickle, Format::msgpack,
                                      Format::numpy_frames};
inline std::string name_of(Format format) {
  constexpr const char* kNames[] = {"zmq_op", "pickle", "msgpack", "numpy-frames"};
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
    const auto label = static_cast<std::uint64_t>(label_of(spec, name, index));
    Writer writer(array.data);
    big_endian ? writer.big(label, 4) : writer.little(label, 4);
  }
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
  }
  return frames;
}

inline Message message_of(Format format, const BatchSpec& spec, BatchName name) {
  return write(format, pixels_array(spec, name), labels_array(spec, name));
}

inline std::int64_t bytes_of(const Message& message) {
  std::int64_t bytes = 0;
  for (const Bytes& frame : message) bytes += static_cast<std::int64_t>(frame.size());
  return bytes;
}

}  // namespace penstock::transport
