// SPDX-License-Identifier: Apache-2.0
#include "dataflow/values/value_tree.h"

#include <string>
#include <utility>

#include "dataflow/error.h"
#include "dataflow/values/value_at.h"

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

std::string_view text_of(const Value& value) { return text_of(value.bytes); }

std::optional<std::int64_t> integer_of(const Value& value) {
  if (value.kind == ValueKind::integer) return value.integer;
  const bool single = value.kind == ValueKind::array && !value.array.data.empty() &&
                      value.array.data.size() == value.array.type.bytes;
  return single ? numpy_integer(value.array.type, value.array.data) : std::nullopt;
}

// ---- pyarrow's messages ------------------------------------------------------

void refuse_pyarrow(std::span<const std::byte> bytes) {
  // Four counts of attached arrays, then the mark before each part of a stream of Arrow's.
  constexpr std::size_t kMark = 16;
  if (bytes.size() < kMark + 8 || value_at<std::uint32_t>(bytes, kMark) != 0xffffffff) return;
  throw DataError(
      "data of pyarrow.serialize(), which is unsupported; expected a pickle or MessagePack; set "
      "TENSORPACK_SERIALIZE=pickle or msgpack where tensorpack writes them");
}

// ---- tensorpack's datapoints ------------------------------------------------

namespace {

[[noreturn]] void refuse(const std::string& problem) {
  throw DataError(
      "a datapoint that cannot be used: {}; expected a list of an image (uint8 array or bytes) and "
      "a label (a whole number)",
      problem);
}

}  // namespace

DatapointView datapoint_of(const Value& image, const Value& label) {
  DatapointView point;
  if (image.kind == ValueKind::bytes) {
    point.image = image.bytes;
  } else if (image.kind == ValueKind::array && image.array.type.kind == 'u' &&
             image.array.type.bytes == 1) {
    point.image = image.array.data;
    point.shape = image.array.shape;
  } else {
    refuse("its first part is no image");
  }
  const std::optional<std::int64_t> number = integer_of(label);
  if (!number) refuse("its second part is no label");
  point.label = *number;
  return point;
}

Datapoint parse_datapoint(std::span<const std::byte> bytes) {
  refuse_pyarrow(bytes);
  // An image's datapoint needs no more values; more would only cost memory.
  constexpr ValueLimits kLimits{.values = 1024, .depth = 8};
  ValueTree tree = is_pickle(bytes) ? parse_pickle(bytes, kLimits) : parse_msgpack(bytes, kLimits);
  const Value& root = tree.root();
  const bool pair = root.kind == ValueKind::list || root.kind == ValueKind::tuple;
  if (!pair || root.items.size() != 2) refuse("it is no list of two");
  const DatapointView view = datapoint_of(tree.at(root.items[0]), tree.at(root.items[1]));
  return {view, std::move(tree)};
}

}  // namespace penstock::values
