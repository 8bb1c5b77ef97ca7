// SPDX-License-Identifier: Apache-2.0
// Parses TFRecord files and the tf.train.Example messages in them. It maps bytes to views and opens
// no files.
//
//   record: u64 length | u32 masked CRC32C of the length | data | u32 masked CRC32C of the data
//
// All numbers are little-endian. Example and its parts are protocol buffers
// (tensorflow/core/example/example.proto and feature.proto). They are parsed by hand, since only
// one label and one image are needed, and the image's bytes must not be touched.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dataflow/sample.h"

namespace penstock::datasets {

/// Bytes before the data of a record, and in total around them.
inline constexpr std::size_t kTfRecordHeader = 12, kTfRecordFrame = 16;

struct TfRecordHeader {
  std::uint64_t data_bytes = 0;
  bool crc_matches = false;  ///< the CRC of the length
};

TfRecordHeader parse_tfrecord_header(std::span<const std::byte, kTfRecordHeader> bytes) noexcept;

/// True if the four bytes after `data` are their CRC.
bool tfrecord_data_match(std::span<const std::byte> data,
                         std::span<const std::byte, 4> crc) noexcept;

/// A record's data. With `check` it compares the CRCs first. Throws DataError, with only the
/// problem as text, unless `record` is exactly one record.
std::span<const std::byte> tfrecord_data(std::span<const std::byte> record, bool check);

/// Keys of the image feature (bytes) and the label feature (int64). Without a key there is no
/// label.
struct ExampleKeys {
  std::string_view image, label;
};

struct ExampleView {
  std::optional<std::span<const std::byte>> image;
  std::optional<std::int64_t> label;
  /// The features image/object/bbox/xmin, ymin, xmax and ymax; empty if there are none.
  std::array<std::span<const std::byte>, 4> box_sides{};
};

/// If features have equal keys, the last one counts, as in any protocol buffer's map. Unknown
/// fields are skipped. Throws DataError, with only the problem as text, if the data are not an
/// Example, or if the image or label is not exactly one value of its type.
ExampleView parse_example(std::span<const std::byte> data, const ExampleKeys& keys);

/// Replaces `boxes` with those of the view. There are none unless the four lists are floats of
/// equal number; boxes that are not inside the image are left out. Throws DataError as
/// parse_example().
void read_boxes(const ExampleView& view, std::vector<ObjectBox>& boxes);

/// The keys of all features for a message: "image/encoded, image/class/label", at most 20. Throws
/// DataError as parse_example() does.
std::string list_example_keys(std::span<const std::byte> data);

}  // namespace penstock::datasets
