// SPDX-License-Identifier: Apache-2.0
// tensorpack's datapoints as the records of a data set: an image, encoded or of pixels, and its
// label. Several formats hold them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "dataflow/options.h"
#include "dataflow/source.h"
#include "dataflow/values/datapoint_writer.h"
#include "dataflow/values/value_tree.h"

namespace penstock::datasets {

/// An image as a record stores it.
struct StoredImage {
  std::span<const std::byte> content{};
  PixelLayout layout{};       ///< empty: the image is encoded
  std::int32_t label = -1;    ///< -1: it is no label of a class
  values::ValueTree owner{};  ///< holds the content if the record does not contain it as is
};

/// The label of a class, or -1.
std::int32_t class_of(std::int64_t label) noexcept;

/// Throws DataError if the number of pixels is wrong or too large.
PixelLayout make_layout(std::int64_t width, std::int64_t height, std::int64_t channels,
                        std::size_t bytes);

/// Pixels are blue first if `bgr` is true. Throws DataError.
StoredImage image_of_datapoint(const values::DatapointView& point, bool bgr);
/// The same for a serialised datapoint.
StoredImage image_of_datapoint(std::span<const std::byte> record, bool bgr);

/// True for MessagePack, pickles and pyarrow's data; false for messages of a protocol buffer.
bool begins_as_datapoint(std::span<const std::byte> record) noexcept;

/// RecordFormat::open() of a set of images of `kind`. `parse` throws DataError for damage.
void open_stored_image(Sample& sample, SampleKind kind,
                       const std::function<StoredImage(std::span<const std::byte>)>& parse);

/// For writers.
inline constexpr OptionSpec kDumpsOption = {
    "dumps", "pickle",
    "how datapoints are written: pickle (tensorpack 0.9.9 and later) or msgpack"};

/// How a writer writes datapoints. None if its option `form` is another one than datapoint.
std::optional<values::Dumps> dumps_of(const Options& options, std::string_view form,
                                      std::string_view other);

}  // namespace penstock::datasets
