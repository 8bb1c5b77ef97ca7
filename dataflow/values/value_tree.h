// SPDX-License-Identifier: Apache-2.0
// What a pickle or a MessagePack message says, as plain values that point into its bytes. The
// parsers (pickle.h, msgpack.h) make one; nothing in it is ever called.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "dataflow/wire/numpy_array.h"

namespace penstock {

enum class ValueKind : std::uint8_t {
  none,
  boolean,
  integer,
  real,
  text,   ///< said to be UTF-8, which is not checked
  bytes,  ///< also Python 2's str
  list,
  tuple,
  dict,
  array
};

/// Names a value within its tree.
using ValueId = std::uint32_t;

struct Value {
  ValueKind kind = ValueKind::none;
  std::int64_t integer = 0;  ///< of booleans: 0 or 1
  double real = 0;
  std::span<const std::byte> bytes;  ///< of text and bytes
  std::vector<ValueId> items;        ///< of lists and tuples; of dicts keys and values in turn
  NumpyArray array;
};

/// What a parser stops at.
struct ValueLimits {
  std::uint32_t values = 1U << 18;
  std::int32_t depth = 32;
};

/// A value may be part of several others, and of none that is part of it.
class ValueTree {
 public:
  const Value& root() const noexcept { return values_[root_]; }
  const Value& at(ValueId id) const noexcept { return values_[id]; }
  std::size_t size() const noexcept { return values_.size(); }

  /// The value of a key that is such a text or such bytes; null: `dict` has none, or is no dict.
  const Value* find(const Value& dict, std::string_view key) const;

  // For parsers.
  ValueId add(Value value);
  Value& edit(ValueId id) noexcept { return values_[id]; }
  /// Keeps bytes that the input does not hold as they are.
  std::span<const std::byte> keep(std::vector<std::byte> bytes);
  void set_root(ValueId id) noexcept { root_ = id; }

 private:
  std::vector<Value> values_;
  std::deque<std::vector<std::byte>> kept_;
  ValueId root_ = 0;
};

/// The characters of text or bytes; empty for others.
std::string_view text_of(const Value& value);
/// Of an integer, or of an array of one whole number.
std::optional<std::int64_t> integer_of(const Value& value);

}  // namespace penstock
