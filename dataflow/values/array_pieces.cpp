// SPDX-License-Identifier: Apache-2.0
#include "dataflow/values/array_pieces.h"

#include <limits>

#include "dataflow/error.h"

namespace penstock::values {
namespace {

using namespace std::string_view_literals;

std::uint64_t bytes_of(const NumpyArray& array) {
  const std::optional<std::uint64_t> bytes = numpy_bytes(array.type, array.shape);
  PENSTOCK_ASSERT(bytes.has_value());
  return *bytes;
}

/// "u1", "i4".
std::string code_of(NumpyType type) { return type.kind + std::to_string(type.bytes); }

char order_of(NumpyType type) {
  if (type.bytes == 1) return '|';
  return type.big_endian ? '>' : '<';
}

std::uint32_t length_of(std::int64_t dimension) {
  PENSTOCK_ASSERT(dimension >= 0 && dimension <= std::numeric_limits<std::int32_t>::max());
  return static_cast<std::uint32_t>(dimension);
}

}  // namespace

void append_little(std::string& to, std::uint64_t value, int width) {
  for (int i = 0; i < width; ++i) to += static_cast<char>(value >> (8 * i));
}

void append_big(std::string& to, std::uint64_t value, int width) {
  for (int i = width; i-- > 0;) to += static_cast<char>(value >> (8 * i));
}

// Opcodes are those of Lib/pickletools.py; the calls are those of numpy.ndarray.__reduce__ and
// numpy.dtype.__reduce__.
void append_pickled_array(std::string& to, const NumpyArray& array) {
  PENSTOCK_ASSERT(!array.fortran_order);
  const bool holds_objects = array.type.kind == kNumpyObject;
  const std::string code = code_of(array.type);
  // _reconstruct(ndarray, (0,), b'b')
  to +=
      "cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85"
      "C\x01"
      "b\x87R"sv;
  to += "(K\x01("sv;  // its state: version 1, the shape
  for (const std::int64_t dimension : array.shape) {
    to += 'J';
    append_little(to, length_of(dimension), 4);
  }
  // dtype(code, False, True) with the state (3, order, None, None, None, -1, -1, flags)
  to += "tcnumpy\ndtype\n\x8c";
  to += static_cast<char>(code.size());
  to += code;
  to += "\x89\x88\x87R(K\x03\x8c\x01"sv;
  to += holds_objects ? '|' : order_of(array.type);
  to += "NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK"sv;
  to += holds_objects ? '\x3f' : '\0';
  to += "tb\x89";
  if (holds_objects) return;
  to += '\x8e';  // BINBYTES8
  append_little(to, bytes_of(array), 8);
}

ArrayPieces pickle_pieces(std::span<const NumpyArray> arrays) {
  ArrayPieces pieces;
  std::string piece("\x80\x04](", 4);  // PROTO 4, EMPTY_LIST, MARK
  for (const NumpyArray& array : arrays) {
    append_pickled_array(piece, array);
    pieces.push_back(piece);
    piece = kPickledArrayEnd;
  }
  pieces.push_back(piece + "e.");  // APPENDS, STOP
  return pieces;
}

void append_msgpack_array(std::string& to, const NumpyArray& array) {
  PENSTOCK_ASSERT(!array.fortran_order && array.shape.size() < 16);
  // {b"nd": True, b"type": "|u1", b"kind": b"", b"shape": [...], b"data": bytes}
  to += "\x85\xc4\x02nd\xc3\xc4\x04type\xa3"sv;
  to += order_of(array.type) + code_of(array.type);
  to += "\xc4\x04kind\xc4\0\xc4\x05shape"sv;
  to += static_cast<char>(0x90 + array.shape.size());
  for (const std::int64_t dimension : array.shape) {
    to += '\xce';
    append_big(to, length_of(dimension), 4);
  }
  const std::uint64_t bytes = bytes_of(array);
  PENSTOCK_ASSERT(bytes <= std::numeric_limits<std::uint32_t>::max());
  to +=
      "\xc4\x04"
      "data\xc6"sv;
  append_big(to, bytes, 4);
}

ArrayPieces msgpack_pieces(std::span<const NumpyArray> arrays) {
  PENSTOCK_ASSERT(arrays.size() < 16);
  ArrayPieces pieces;
  std::string piece(1, static_cast<char>(0x90 + arrays.size()));
  for (const NumpyArray& array : arrays) {
    append_msgpack_array(piece, array);
    pieces.push_back(piece);
    piece.clear();
  }
  pieces.push_back(piece);
  return pieces;
}

}  // namespace penstock::values
