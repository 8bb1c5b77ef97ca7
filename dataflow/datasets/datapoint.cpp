// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/datapoint.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "dataflow/datasets/record_source.h"
#include "dataflow/error.h"

namespace penstock::datasets {

std::int32_t class_of(std::int64_t label) noexcept {
  const bool fits = label >= 0 && label < std::numeric_limits<std::int32_t>::max();
  return fits ? static_cast<std::int32_t>(label) : -1;
}

PixelLayout make_layout(std::int64_t width, std::int64_t height, std::int64_t channels,
                        std::size_t bytes) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (width < 1 || height < 1 || (channels != 1 && channels != 3) ||
      height > kMost / channels / width ||
      static_cast<std::uint64_t>(width * height * channels) != bytes) {
    throw DataError("pixels of {}x{}x{} in {} bytes; expected one byte for each of 1 or 3 channels",
                    height, width, channels, bytes);
  }
  return {.width = static_cast<std::int32_t>(width),
          .height = static_cast<std::int32_t>(height),
          .channels = static_cast<std::int32_t>(channels)};
}

StoredImage image_of_datapoint(const values::DatapointView& point, bool bgr) {
  StoredImage image{.content = point.image, .label = class_of(point.label)};
  const std::vector<std::int64_t>& shape = point.shape;
  if (shape.size() == 2 || shape.size() == 3) {
    image.layout =
        make_layout(shape[1], shape[0], shape.size() == 3 ? shape[2] : 1, point.image.size());
    image.layout.bgr = bgr;
  } else if (shape.size() > 3) {
    throw DataError("an image of more than three dimensions");
  }
  return image;
}

StoredImage image_of_datapoint(std::span<const std::byte> record, bool bgr) {
  values::Datapoint point = values::parse_datapoint(record);
  StoredImage image = image_of_datapoint(point, bgr);
  image.owner = std::move(point.tree);
  return image;
}

bool begins_as_datapoint(std::span<const std::byte> record) noexcept {
  // 0x92 begins a list of two in MessagePack, 0 begins pyarrow's data, which parsing refuses by
  // name; a message of a protocol buffer begins with a tag between 0 and 0x80, or above 15.
  const bool begins =
      !record.empty() && (record[0] == std::byte{0x92} || record[0] == std::byte{0});
  return begins || values::is_pickle(record);
}

void open_stored_image(Sample& sample, SampleKind kind,
                       const std::function<StoredImage(std::span<const std::byte>)>& parse) {
  const std::span<const std::byte> record = sample.lent;
  std::string problem;
  try {
    const StoredImage image = parse(record);
    if (image.layout.empty() != (kind == SampleKind::encoded)) {
      problem = "it is an image of another kind than the first (encoded, or pixels)";
    } else if (image.content.empty()) {
      problem = "its image is empty";
    } else {
      sample.layout = image.layout;
      give_image(sample, image.content, record);
    }
  } catch (const DataError& error) {
    problem = std::string("it is ") + error.what();
  }
  if (!problem.empty()) refuse_record(sample, problem);
}

std::optional<values::Dumps> dumps_of(const Options& options, std::string_view form,
                                      std::string_view other) {
  const bool pickles = options.choice("dumps", {{"pickle"}, {"msgpack"}}) == 0;
  if (options.choice(form, {{other}, {"datapoint"}}) == 0) return std::nullopt;
  return pickles ? values::Dumps::pickle : values::Dumps::msgpack;
}

}  // namespace penstock::datasets
