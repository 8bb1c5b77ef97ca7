// SPDX-License-Identifier: Apache-2.0
#include "dataflow/values/value_tree.h"

#include <utility>

namespace penstock::values {

const Value* ValueTree::find(const Value& dict, std::string_view key) const {
  if (dict.kind != ValueKind::dict) return nullptr;
  for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const Value& candidate = at(dict.items[i]);
    const bool is_text = candidate.kind == ValueKind::text || candidate.kind == ValueKind::bytes;
    if (is_text && text_of(candidate) == key) return &at(dict.items[i + 1]);
  }
  return nullptr;
}

ValueId ValueTree::add(Value value) {
  values_.push_back(std::move(value));
  return static_cast<ValueId>(values_.size() - 1);
}

std::span<const std::byte> ValueTree::keep(std::vector<std::byte> bytes) {
  return kept_.emplace_back(std::move(bytes));
}

std::string_view text_of(const Value& value) {
  return {reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()};
}

std::optional<std::int64_t> integer_of(const Value& value) {
  if (value.kind == ValueKind::integer) return value.integer;
  const bool single = value.kind == ValueKind::array && !value.array.data.empty() &&
                      value.array.data.size() == value.array.type.bytes;
  return single ? numpy_integer(value.array.type, value.array.data) : std::nullopt;
}

}  // namespace penstock::values
