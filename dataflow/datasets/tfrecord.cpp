// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/tfrecord.h"

#include <algorithm>

#include "dataflow/datasets/protobuf.h"
#include "dataflow/error.h"
#include "dataflow/values/crc32c.h"
#include "dataflow/values/value_at.h"

namespace penstock::datasets {
namespace {

using Bytes = std::span<const std::byte>;

/// The sides of boxes around objects, in the order of ObjectBox.
constexpr std::array<std::string_view, 4> kBoxKeys = {
    "image/object/bbox/xmin", "image/object/bbox/ymin", "image/object/bbox/xmax",
    "image/object/bbox/ymax"};

constexpr auto kBytes = protozero::pbf_wire_type::length_delimited;
constexpr auto kNumber = protozero::pbf_wire_type::varint;

/// Calls `use(key, feature)` for each entry of the map in each Features of an Example.
template <typename Use>
void for_each_feature(Bytes example, const Use& use) {
  using protozero::pbf_reader;
  read_message("it", [&] {
    for (pbf_reader fields(view_of(example)); fields.next(1, kBytes);) {  // Example.features
      for (pbf_reader features = fields.get_message(); features.next(1, kBytes);) {  // .feature
        Bytes key, feature;
        for (pbf_reader entry = features.get_message(); entry.next();) {
          const bool is_key = entry.tag() == 1 && has_bytes(entry);
          const bool is_value = entry.tag() == 2 && has_bytes(entry);
          if (is_key) key = bytes_of(entry.get_view());
          if (is_value) feature = bytes_of(entry.get_view());
          if (!is_key && !is_value) entry.skip();
        }
        use(values::text_of(key), feature);
      }
    }
  });
}

/// Calls `use` for each message of field `number` of a Feature. A Feature has only one of the three
/// kinds, so the others must not appear.
template <typename Use>
void for_each_list(Bytes feature, protozero::pbf_tag_type number, const std::string& expected,
                   const Use& use) {
  for (protozero::pbf_reader fields(view_of(feature)); fields.next();) {
    if (fields.tag() > 3 || !has_bytes(fields)) {
      fields.skip();
      continue;
    }
    if (fields.tag() != number) throw DataError(expected + " is of another type");
    use(fields.get_message());
  }
}

/// Calls `use` for each number of a list of floats; other features have none.
template <typename Use>
void for_each_float(Bytes feature, const Use& use) {
  for (protozero::pbf_reader fields(view_of(feature)); fields.next(2, kBytes);) {
    for (protozero::pbf_reader list = fields.get_message(); list.next(1);) {
      if (list.wire_type() == protozero::pbf_wire_type::fixed32) {
        use(list.get_float());
      } else if (has_bytes(list)) {
        for (const float value : list.get_packed_float()) use(value);
      } else {
        list.skip();
      }
    }
  }
}

template <typename Value>
void take_one(std::optional<Value>& taken, Value value, const std::string& expected) {
  if (taken) throw DataError(expected + " has more than one value");
  taken = value;
}

/// Empty if the list is empty, as if the feature were missing.
std::optional<Bytes> image_of(Bytes feature, std::string_view key) {
  const std::string expected = "the feature '" + std::string(key) + "', one of bytes,";
  std::optional<Bytes> image;
  for_each_list(feature, 1, expected, [&](protozero::pbf_reader list) {
    while (list.next(1, kBytes)) take_one(image, bytes_of(list.get_view()), expected);
  });
  return image;
}

/// Numbers may be stored one by one, or packed into one field.
std::optional<std::int64_t> label_of(Bytes feature, std::string_view key) {
  const std::string expected = "the feature '" + std::string(key) + "', one of int64,";
  std::optional<std::int64_t> label;
  const auto take = [&](std::uint64_t value) {
    take_one(label, static_cast<std::int64_t>(value), expected);
  };
  for_each_list(feature, 3, expected, [&](protozero::pbf_reader list) {
    while (list.next(1)) {
      if (list.wire_type() == kNumber) {
        take(list.get_uint64());
      } else if (has_bytes(list)) {
        for (const std::uint64_t value : list.get_packed_uint64()) take(value);
      } else {
        list.skip();
      }
    }
  });
  return label;
}

}  // namespace

TfRecordHeader parse_tfrecord_header(std::span<const std::byte, kTfRecordHeader> bytes) noexcept {
  TfRecordHeader header;
  header.data_bytes = values::value_at<std::uint64_t>(bytes, 0);
  header.crc_matches = values::masked_crc32c(values::crc32c(bytes.first(8))) ==
                       values::value_at<std::uint32_t>(bytes, 8);
  return header;
}

bool tfrecord_data_match(std::span<const std::byte> data,
                         std::span<const std::byte, 4> crc) noexcept {
  return values::masked_crc32c(values::crc32c(data)) == values::value_at<std::uint32_t>(crc, 0);
}

std::span<const std::byte> tfrecord_data(std::span<const std::byte> record, bool check) {
  if (record.size() < kTfRecordFrame) throw DataError("it is cut off");
  const TfRecordHeader header = parse_tfrecord_header(record.first<kTfRecordHeader>());
  if (check && !header.crc_matches) throw DataError("its length does not match its CRC");
  const std::uint64_t there = record.size() - kTfRecordFrame;
  if (header.data_bytes != there) {
    throw DataError("it says that it has {} bytes of data, and {} are there", header.data_bytes,
                    there);
  }
  const Bytes data = record.subspan(kTfRecordHeader, there);
  if (check && !tfrecord_data_match(data, record.last<4>())) {
    throw DataError("its data do not match their CRC");
  }
  return data;
}

ExampleView parse_example(std::span<const std::byte> data, const ExampleKeys& keys) {
  ExampleView view;
  for_each_feature(data, [&](std::string_view key, Bytes feature) {
    if (key == keys.image) view.image = image_of(feature, key);
    if (key == keys.label && !key.empty()) view.label = label_of(feature, key);
    const auto* const side = std::ranges::find(kBoxKeys, key);
    if (side != kBoxKeys.end()) view.box_sides[side - kBoxKeys.begin()] = feature;
  });
  return view;
}

void read_boxes(const ExampleView& view, std::vector<ObjectBox>& boxes) {
  constexpr std::array kSides = {&ObjectBox::left, &ObjectBox::top, &ObjectBox::right,
                                 &ObjectBox::bottom};
  boxes.clear();
  bool equal = true;
  read_message("it", [&] {
    for (std::size_t side = 0; side < kSides.size(); ++side) {
      std::size_t count = 0;
      for_each_float(view.box_sides[side], [&](float value) {
        if (side == 0) boxes.emplace_back();
        if (count < boxes.size()) boxes[count].*kSides[side] = value;
        ++count;
      });
      equal = equal && count == boxes.size();
    }
  });
  if (!equal) boxes.clear();
  std::erase_if(boxes, [](const ObjectBox& box) {
    return !(box.left >= 0 && box.left <= box.right && box.right <= 1 && box.top >= 0 &&
             box.top <= box.bottom && box.bottom <= 1);
  });
}

std::string list_example_keys(std::span<const std::byte> data) {
  constexpr std::size_t kShown = 20;
  std::string text;
  std::size_t count = 0;
  for_each_feature(data, [&](std::string_view key, Bytes) {
    if (++count > kShown) return;
    text += count > 1 ? ", " : "";
    for (const char c : key.substr(0, 60)) text += c >= ' ' && c <= '~' ? c : '?';
  });
  if (count > kShown) text += ", ...";
  return text.empty() ? "none" : text;
}

}  // namespace penstock::datasets
