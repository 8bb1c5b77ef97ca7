// SPDX-License-Identifier: Apache-2.0
// The content of a pickle or a MessagePack message as plain values that point into its bytes. The
// parsers (pickle.h, msgpack.h) make it. Nothing in it is ever executed.
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
  std::span<const std::byte> bytes;  ///< for text and bytes
  std::vector<ValueId> items;        ///< for lists and tuples; for dicts keys and values in turn
  NumpyArray array;
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

}  // namespace penstock::values
