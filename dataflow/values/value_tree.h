// SPDX-License-Identifier: Apache-2.0
// The content of a pickle or a MessagePack message as plain values that point into its bytes, and
// the parsers that make it. Nothing in it is ever executed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "dataflow/values/numpy_array.h"

namespace penstock::values {

enum class ValueKind : std::uint8_t {
  none,
  boolean,
  integer,
  real,
  text,   ///< claimed to be UTF-8; not checked
  bytes,  ///< also Python 2's str
  list,
  tuple,
  dict,
  array
};

/// Identifies a value in its tree.
using ValueId = std::uint32_t;

struct Value {
  ValueKind kind = ValueKind::none;
  std::int64_t integer = 0;  ///< for booleans: 0 or 1
  double real = 0;
  std::span<const std::byte> bytes{};  ///< for text and bytes
  /// For lists and tuples; for dicts keys and values in turn; for arrays of objects the list of all
  /// elements.
  std::vector<ValueId> items{};
  NumpyArray array{};  ///< of objects: its kind is kNumpyObject, and it has no data
};

/// The limits at which a parser refuses its input.
struct ValueLimits {
  std::uint32_t values = 1U << 18;
  std::int32_t depth = 32;
};

/// A value may be part of several others. There are no cycles.
class ValueTree {
 public:
  const Value& root() const noexcept { return values_[root_]; }
  const Value& at(ValueId id) const noexcept { return values_[id]; }
  std::size_t size() const noexcept { return values_.size(); }

  /// The value for a key that is this text or these bytes; null if `dict` lacks it or is not a
  /// dict.
  const Value* find(const Value& dict, std::string_view key) const;

  // For parsers.
  ValueId add(Value value);
  Value& edit(ValueId id) noexcept { return values_[id]; }
  /// Keeps bytes that the input does not contain as is.
  std::span<const std::byte> keep(std::vector<std::byte> bytes);
  void set_root(ValueId id) noexcept { root_ = id; }

 private:
  std::vector<Value> values_;
  std::deque<std::vector<std::byte>> kept_;
  ValueId root_ = 0;
};

/// The characters of text or bytes; empty for other values.
std::string_view text_of(const Value& value);
/// The value of an integer, or of an array with one whole number.
std::optional<std::int64_t> integer_of(const Value& value);

// ---- MessagePack --------------------------------------------------------------

// https://github.com/msgpack/msgpack/blob/master/spec.md, with NumPy arrays and numbers as the
// Python package msgpack-numpy writes them. Text and bytes are views of the input. Extension types
// are unsupported.

/// The value of a message, which must take up all of `bytes`. `bytes` must outlive the result.
/// MessagePack arrays become lists and maps become dicts; a map of msgpack-numpy becomes an array
/// or a number. Throws DataError with the offset for anything else. The input's length and the
/// limits bound the memory.
ValueTree parse_msgpack(std::span<const std::byte> bytes, const ValueLimits& limits = {});

// ---- Python's pickles --------------------------------------------------------

// Plain values and NumPy arrays: protocols 2 to 5, of Python 2 and 3. The parser executes nothing:
// it knows the names of the few functions that NumPy's own pickles call, and refuses every other
// name. Bytes are views of the input, except if protocol 2 of Python 3 stores them as text, or if
// an array is in Fortran's order: its copy is in C's order.
//
// Supported values: None, bool, int up to 64 bits, float, str, bytes, bytearray, list, tuple, dict,
// ndarray and NumPy's scalars of plain numbers, and ndarray of objects that are such values.

/// True if the bytes begin like a pickle of protocol 2 or later.
bool is_pickle(std::span<const std::byte> bytes) noexcept;

/// The value of a pickle, which must take up all of `bytes`. `bytes` must outlive the result.
/// Throws DataError that names the opcode and its offset for anything else. The input's length and
/// the limits bound the memory.
ValueTree parse_pickle(std::span<const std::byte> bytes, const ValueLimits& limits = {});

// ---- pyarrow's messages ------------------------------------------------------

/// Throws DataError if the bytes begin like the result of pyarrow.serialize(), which is
/// unsupported: pyarrow itself removed that function.
void refuse_pyarrow(std::span<const std::byte> bytes);

// ---- tensorpack's datapoints ------------------------------------------------

/// An image and its label, as tensorpack's serializers write them: a list of two in a pickle or in
/// MessagePack. The image is a uint8 array, or bytes.
struct DatapointView {
  std::span<const std::byte> image;
  std::vector<std::int64_t> shape;  ///< of an array; one dimension, or none: an encoded image
  std::int64_t label = 0;
};
struct Datapoint : DatapointView {
  ValueTree tree;  ///< holds the image if `image` is not a view of the input
};

/// Throws DataError for anything else.
DatapointView datapoint_of(const Value& image, const Value& label);

/// `bytes` must outlive the result. Throws DataError for anything else.
Datapoint parse_datapoint(std::span<const std::byte> bytes);

}  // namespace penstock::values
