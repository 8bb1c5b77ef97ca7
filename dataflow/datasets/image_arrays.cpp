// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/image_arrays.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "dataflow/datasets/datapoint.h"
#include "dataflow/error.h"

namespace penstock::datasets {
namespace {

void check_labels(const std::string& path, const values::NumpyArray& labels, std::uint64_t count) {
  if (labels.type.kind != 'u' && labels.type.kind != 'i') {
    refuse_arrays(path, "does not hold whole numbers");
  }
  // Of further dimensions, each has the length 1.
  const bool flat =
      !labels.shape.empty() && std::all_of(labels.shape.begin() + 1, labels.shape.end(),
                                           [](std::int64_t length) { return length == 1; });
  if (!flat || static_cast<std::uint64_t>(labels.shape[0]) != count) {
    refuse_arrays(path, fmt::format("does not hold one label for each of {} images", count));
  }
  if (labels.data.size() / labels.type.bytes != count) refuse_arrays(path, "was cut");
}

}  // namespace

void refuse_arrays(const std::string& path, const std::string& problem) {
  throw ConfigError(
      "the data file '{}' {}; expected uint8 images [N,H,W,C], [N,C,H,W] or [N,H,W] and N whole "
      "numbers as labels (of raw: in images.npy and labels.npy); check --data-dir and the options "
      "of the source",
      path, problem);
}

std::string npy_header(std::string_view type, const std::string& shape) {
  constexpr std::string_view kFront("\x93NUMPY\x01\x00\x76\x00",
                                    10);  // ends with the length of the rest
  std::string header(kFront);
  header += fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", type, shape);
  header.resize(kNpyHeaderBytes - 1, ' ');
  return header + '\n';
}

PixelLayout layout_of_images(const std::string& path, const values::NumpyArray& images,
                             const Options& options) {
  const std::string& layout = options.text("layout");
  const bool bgr = options.choice("channels", {{"rgb"}, {"bgr"}}) == 1;
  const std::vector<std::int64_t>& shape = images.shape;
  if (images.type.kind != 'u' || images.type.bytes != 1) {
    refuse_arrays(path, "does not hold uint8 values");
  }
  if (images.fortran_order && shape.size() > 1) refuse_arrays(path, "is in Fortran's order");
  const auto is_channels = [](std::int64_t length) { return length == 1 || length == 3; };
  const bool hwc = shape.size() == 4 && is_channels(shape[3]) && layout != "chw";
  const bool chw = shape.size() == 4 && is_channels(shape[1]) && layout != "hwc";
  const bool hw = shape.size() == 3;
  if (layout != "auto" && !(layout == "hwc" && hwc) && !(layout == "chw" && chw) &&
      !(layout == "hw" && hw)) {
    refuse_arrays(path, "does not have the shape of layout=" + layout);
  }
  if (hwc && chw) refuse_arrays(path, "may be of layout=hwc or layout=chw: state which");
  if (!hwc && !chw && !hw) refuse_arrays(path, "has another shape");
  const std::int64_t height = shape[chw ? 2 : 1], width = shape[chw ? 3 : 2],
                     channels = hw ? 1 : shape[chw ? 1 : 3];
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (height < 1 || width < 1 || height > kMost / channels / width) {
    refuse_arrays(path, "has images of 0 bytes, or of 2 GiB or more");
  }
  return {.width = static_cast<std::int32_t>(width),
          .height = static_cast<std::int32_t>(height),
          .channels = static_cast<std::int32_t>(channels),
          .planar = chw,
          .bgr = bgr};
}

void ImageArrayFormat::index(const MappedFile& shard, const AddRecord& add) const {
  const ImageArrays arrays = find(shard);
  if (layout_of_images(shard.path(), arrays.images, options_) != layout_) {
    refuse_arrays(shard.path(), "has images of another shape than the first file");
  }
  const auto count = static_cast<std::uint64_t>(arrays.images.shape[0]);
  check_labels(arrays.label_path, arrays.labels, count);
  const std::span<const std::byte> images = arrays.images.data;
  const auto begin = static_cast<std::uint64_t>(images.data() - shard.bytes().data());
  const std::uint64_t whole = images.size() / layout_.bytes();
  for (std::uint64_t i = 0; i < whole; ++i) {
    const values::NumpyArray& labels = arrays.labels;
    const std::optional<std::int64_t> label =
        values::numpy_integer(labels.type, labels.data.subspan(i * labels.type.bytes));
    add({begin + i * layout_.bytes(), static_cast<std::uint32_t>(layout_.bytes()),
         class_of(label.value_or(-1))});
  }
  // The missing rest of a truncated file is one damaged record.
  const auto rest = static_cast<std::uint32_t>(images.size() - whole * layout_.bytes());
  if (whole < count) add({begin + whole * layout_.bytes(), rest, -1});
}

void ImageArrayFormat::open(Sample& sample) const {
  if (sample.lent.size() != layout_.bytes()) {
    refuse_record(sample, fmt::format("the file ends here, {} bytes into an image of {}",
                                      sample.lent.size(), layout_.bytes()));
  }
  if (sample.label < 0) refuse_record(sample, "its label is negative, or too large");
  sample.layout = layout_;
}

}  // namespace penstock::datasets
