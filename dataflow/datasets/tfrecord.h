// SPDX-License-Identifier: Apache-2.0
// TFRecord files and the tf.train.Example messages in them: bytes in, views out; no files.
//
//   record: u64 length | u32 masked CRC32C of the length | data | u32 masked CRC32C of the data
//
// All little-endian. Example and its parts are protocol buffers (tensorflow/core/example/
// example.proto and feature.proto), taken apart by hand: one label and one image are wanted of
// them, and the image's bytes are not to be touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace penstock {

/// What is around the data of a record, in bytes.
inline constexpr std::size_t kTfRecordHeader = 12, kTfRecordFrame = 16;

struct TfRecordHeader {
  std::uint64_t data_bytes = 0;
  bool crc_matches = false;  ///< of the length
};

TfRecordHeader parse_tfrecord_header(std::span<const std::byte, kTfRecordHeader> bytes) noexcept;

/// Whether the four bytes behind `data` are their CRC.
bool tfrecord_data_match(std::span<const std::byte> data,
                         std::span<const std::byte, 4> crc) noexcept;

/// A record's data, with `check` after its CRCs are compared. Throws DataError, with the problem
/// alone, for a record that is not exactly one.
std::span<const std::byte> tfrecord_data(std::span<const std::byte> record, bool check);

/// Which features are the image (one of bytes) and the label (one of int64); without a key there is
/// no label.
struct ExampleKeys {
  std::string_view image, label;
};

struct ExampleView {
  std::optional<std::span<const std::byte>> image;
  std::optional<std::int64_t> label;
};

/// Of features with equal keys the last counts, as in any protocol buffer's map; unknown fields are
/// skipped. Throws DataError, with the problem alone, for what is no Example, and for an image or
/// label that is not one value of its type.
ExampleView parse_example(std::span<const std::byte> data, const ExampleKeys& keys);

/// The keys of all features as text for a message: "image/encoded, image/class/label", at most 20.
/// Throws DataError as parse_example() does.
std::string list_example_keys(std::span<const std::byte> data);

}  // namespace penstock
