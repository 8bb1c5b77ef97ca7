// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/tfrecord.h"

#include <cstring>

#include "dataflow/error.h"
#include "dataflow/values/crc32c.h"

namespace penstock::datasets {
namespace {

using Bytes = std::span<const std::byte>;

std::uint32_t u32_at(const std::byte* at) noexcept {
  std::uint32_t value = 0;
  std::memcpy(&value, at, 4);
  return value;
}

/// Iterates over the fields of a protocol buffer message.
class MessageFields {
 public:
  explicit MessageFields(Bytes message) : rest_(message) {}

  /// False: there are no more. Throws DataError for an invalid field.
  bool next() {
    if (rest_.empty()) return false;
    const std::uint64_t tag = read_varint();
    number_ = tag >> 3;
    type_ = static_cast<int>(tag & 7);
    if (number_ == 0 || number_ >= 1U << 29) throw DataError("it is not a protocol buffer");
    switch (type_) {
      case kVarint:
        value_ = read_varint();
        break;
      case kFixed64:
        take(8);
        break;
      case kBytes:
        bytes_ = take(read_varint());
        break;
      case kFixed32:
        take(4);
        break;
      default:
        throw DataError("it has a field of a type that protocol buffers do not have");
    }
    return true;
  }

  /// True if this is field `number` with bytes (a text, a message, packed numbers).
  bool is_bytes(std::uint64_t number) const noexcept {
    return number_ == number && type_ == kBytes;
  }
  bool is_varint(std::uint64_t number) const noexcept {
    return number_ == number && type_ == kVarint;
  }
  Bytes bytes() const noexcept { return bytes_; }
  std::uint64_t value() const noexcept { return value_; }

  /// A varint at the front of the rest: seven bits per byte, the lowest first.
  std::uint64_t read_varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<std::uint64_t>(take(1)[0]);
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw DataError("it has a number of more than 64 bits");
  }

  bool empty() const noexcept { return rest_.empty(); }

 private:
  enum : int { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

  Bytes take(std::uint64_t count) {
    if (count > rest_.size()) throw DataError("a field extends beyond its message");
    const Bytes taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }

  Bytes rest_, bytes_;
  std::uint64_t number_ = 0, value_ = 0;
  int type_ = 0;
};

std::string_view text_of(Bytes bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Calls `use(key, feature)` for each entry of the map in each Features of an Example.
template <typename Use>
void for_each_feature(Bytes example, const Use& use) {
  for (MessageFields fields(example); fields.next();) {
    if (!fields.is_bytes(1)) continue;  // Example.features
    for (MessageFields features(fields.bytes()); features.next();) {
      if (!features.is_bytes(1)) continue;  // Features.feature
      Bytes key, feature;
      for (MessageFields entry(features.bytes()); entry.next();) {
        if (entry.is_bytes(1)) key = entry.bytes();
        if (entry.is_bytes(2)) feature = entry.bytes();
      }
      use(text_of(key), feature);
    }
  }
}

/// Calls `use` for each message of field `number` of a Feature. A Feature has only one of the three
/// kinds, so the others must not appear.
template <typename Use>
void for_each_list(Bytes feature, std::uint64_t number, const std::string& expected,
                   const Use& use) {
  for (MessageFields fields(feature); fields.next();) {
    if (fields.is_bytes(number)) {
      use(fields.bytes());
    } else if (fields.is_bytes(1) || fields.is_bytes(2) || fields.is_bytes(3)) {
      throw DataError(expected + " is of another type");
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
  for_each_list(feature, 1, expected, [&](Bytes list) {
    for (MessageFields fields(list); fields.next();) {
      if (fields.is_bytes(1)) take_one(image, fields.bytes(), expected);
    }
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
  for_each_list(feature, 3, expected, [&](Bytes list) {
    for (MessageFields fields(list); fields.next();) {
      if (fields.is_varint(1)) take(fields.value());
      if (!fields.is_bytes(1)) continue;
      for (MessageFields packed(fields.bytes()); !packed.empty();) take(packed.read_varint());
    }
  });
  return label;
}

}  // namespace

TfRecordHeader parse_tfrecord_header(std::span<const std::byte, kTfRecordHeader> bytes) noexcept {
  TfRecordHeader header;
  std::memcpy(&header.data_bytes, bytes.data(), 8);
  header.crc_matches =
      values::masked_crc32c(values::crc32c(bytes.first(8))) == u32_at(bytes.data() + 8);
  return header;
}

bool tfrecord_data_match(std::span<const std::byte> data,
                         std::span<const std::byte, 4> crc) noexcept {
  return values::masked_crc32c(values::crc32c(data)) == u32_at(crc.data());
}

std::span<const std::byte> tfrecord_data(std::span<const std::byte> record, bool check) {
  if (record.size() < kTfRecordFrame) throw DataError("it is cut off");
  const TfRecordHeader header = parse_tfrecord_header(record.first<kTfRecordHeader>());
  if (check && !header.crc_matches) throw DataError("its length does not match its CRC");
  const std::uint64_t there = record.size() - kTfRecordFrame;
  if (header.data_bytes != there) {
    throw DataError("it says that it has " + std::to_string(header.data_bytes) +
                    " bytes of data, and " + std::to_string(there) + " are there");
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
  });
  return view;
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
