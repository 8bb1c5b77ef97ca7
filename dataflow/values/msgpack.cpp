// SPDX-License-Identifier: Apache-2.0
#include "dataflow/values/value_tree.h"

#include <fmt/format.h>

#include <bit>
#include <limits>
#include <string>
#include <utility>

#include "dataflow/error.h"
#include "dataflow/values/value_at.h"

namespace penstock::values {
namespace {

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, const ValueLimits& limits)
      : bytes_(bytes), limits_(limits) {}

  ValueTree parse() {
    tree_.set_root(read(1));
    if (next_ != bytes_.size()) refuse("is followed by more bytes");
    return std::move(tree_);
  }

 private:
  [[noreturn]] void refuse(const std::string& problem) const {
    throw DataError(
        "a MessagePack message that cannot be read: the value at byte {} {}; expected plain values "
        "and arrays as msgpack-numpy writes them",
        at_, problem);
  }

  std::span<const std::byte> take(std::uint64_t count) {
    if (count > bytes_.size() - next_) {
      refuse(fmt::format("wants {} bytes of the {} that are left", count, bytes_.size() - next_));
    }
    const auto taken = bytes_.subspan(next_, static_cast<std::size_t>(count));
    next_ += taken.size();
    return taken;
  }

  /// The next bytes as a big-endian number.
  std::uint64_t number(std::size_t width) { return number_of(take(width), true); }

  ValueId add(Value value) {
    if (tree_.size() >= limits_.values) {
      refuse(fmt::format("is one of more than {}", limits_.values));
    }
    return tree_.add(std::move(value));
  }
  ValueId add_integer(ValueKind kind, std::int64_t integer) {
    return add({.kind = kind, .integer = integer});
  }
  ValueId add_real(double real) { return add({.kind = ValueKind::real, .real = real}); }
  ValueId add_bytes(ValueKind kind, std::uint64_t count) {
    return add({.kind = kind, .bytes = take(count)});
  }

  ValueId add_list(std::uint64_t count, std::int32_t depth) {
    Value list{.kind = ValueKind::list};
    for (std::uint64_t i = 0; i < count; ++i) list.items.push_back(read(depth + 1));
    return add(std::move(list));
  }

  ValueId add_dict(std::uint64_t count, std::int32_t depth) {
    const std::size_t begin = at_;
    Value dict{.kind = ValueKind::dict};
    for (std::uint64_t i = 0; i < 2 * count; ++i) dict.items.push_back(read(depth + 1));
    at_ = begin;
    if (const Value* const nd = tree_.find(dict, "nd"); nd != nullptr) {
      return add(numpy_value(dict, nd->kind == ValueKind::boolean && nd->integer != 0));
    }
    return add(std::move(dict));
  }

  /// {nd: true, type, kind, shape, data} or {nd: false, type, data}.
  Value numpy_value(const Value& dict, bool is_array) const {
    const Value *name = tree_.find(dict, "type"), *data = tree_.find(dict, "data"),
                *shape = tree_.find(dict, "shape");
    const std::optional<NumpyType> type =
        name != nullptr ? parse_numpy_type(text_of(*name)) : std::nullopt;
    if (!type) refuse("is an array or a number of no plain type");
    if (data == nullptr || data->kind != ValueKind::bytes) refuse("is an array without data");
    if (!is_array) {
      if (data->bytes.size() != type->bytes) refuse("is a number of the wrong size");
      if (const auto integer = numpy_integer(*type, data->bytes)) {
        return {.kind = ValueKind::integer, .integer = *integer};
      }
      if (const auto real = numpy_real(*type, data->bytes)) {
        return {.kind = ValueKind::real, .real = *real};
      }
      refuse("is a number beyond 63 bits, or of 16 bits");
    }
    if (shape == nullptr || shape->kind != ValueKind::list) refuse("is an array without a shape");
    Value value{.kind = ValueKind::array, .array = {.type = *type, .data = data->bytes}};
    for (const ValueId id : shape->items) {
      if (tree_.at(id).kind != ValueKind::integer) refuse("is an array with an invalid shape");
      value.array.shape.push_back(tree_.at(id).integer);
    }
    if (numpy_bytes(*type, value.array.shape) != data->bytes.size()) {
      refuse(
          fmt::format("is an array of a shape that its {} bytes do not have", data->bytes.size()));
    }
    return value;
  }

  ValueId read(std::int32_t depth) {
    if (depth > limits_.depth) refuse(fmt::format("is nested deeper than {}", limits_.depth));
    at_ = next_;
    const auto code = static_cast<std::uint8_t>(number(1));
    if (code < 0x80) return add_integer(ValueKind::integer, code);
    if (code < 0x90) return add_dict(code & 0x0fU, depth);
    if (code < 0xa0) return add_list(code & 0x0fU, depth);
    if (code < 0xc0) return add_bytes(ValueKind::text, code & 0x1fU);
    if (code >= 0xe0) return add_integer(ValueKind::integer, static_cast<std::int8_t>(code));
    switch (code) {
      case 0xc0:
        return add({});
      case 0xc2:
      case 0xc3:
        return add_integer(ValueKind::boolean, code & 1);
      case 0xc4:
      case 0xc5:
      case 0xc6:  // bytes with a length of 8, 16 or 32 bits
        return add_bytes(ValueKind::bytes, number(std::size_t{1} << (code - 0xc4)));
      case 0xca:
        return add_real(std::bit_cast<float>(static_cast<std::uint32_t>(number(4))));
      case 0xcb:
        return add_real(std::bit_cast<double>(number(8)));
      case 0xcc:
      case 0xcd:
      case 0xce:
      case 0xcf: {  // unsigned, 8 to 64 bits
        const std::uint64_t value = number(std::size_t{1} << (code - 0xcc));
        if (value > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
          refuse("is an integer of more than 63 bits");
        }
        return add_integer(ValueKind::integer, static_cast<std::int64_t>(value));
      }
      case 0xd0:
        return add_integer(ValueKind::integer, static_cast<std::int8_t>(number(1)));
      case 0xd1:
        return add_integer(ValueKind::integer, static_cast<std::int16_t>(number(2)));
      case 0xd2:
        return add_integer(ValueKind::integer, static_cast<std::int32_t>(number(4)));
      case 0xd3:
        return add_integer(ValueKind::integer, static_cast<std::int64_t>(number(8)));
      case 0xd9:
      case 0xda:
      case 0xdb:  // text
        return add_bytes(ValueKind::text, number(std::size_t{1} << (code - 0xd9)));
      case 0xdc:
      case 0xdd:
        return add_list(number(code == 0xdc ? 2 : 4), depth);
      case 0xde:
      case 0xdf:
        return add_dict(number(code == 0xde ? 2 : 4), depth);
      default:
        refuse("is of no plain type");
    }
  }

  const std::span<const std::byte> bytes_;
  const ValueLimits limits_;
  std::size_t next_ = 0;
  std::size_t at_ = 0;  // offset of the current value
  ValueTree tree_;
};

}  // namespace

ValueTree parse_msgpack(std::span<const std::byte> bytes, const ValueLimits& limits) {
  return Parser(bytes, limits).parse();
}

}  // namespace penstock::values
