// SPDX-License-Identifier: Apache-2.0
// Pixels in NumPy files, for runs without decoding: images of one shape in files such as
// images.npy, [N,H,W,C], [N,C,H,W] or [N,H,W] of uint8, and a label for each in labels.npy beside
// it. Several pairs form one set: a-images.npy and a-labels.npy, b-images.npy and b-labels.npy.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "dataflow/datasets/dataset_writer.h"
#include "dataflow/datasets/record_source.h"
#include "dataflow/datasets/shard_list.h"
#include "dataflow/error.h"
#include "dataflow/values/numpy_array.h"

namespace penstock::datasets {
namespace {

constexpr OptionSpec kOptions[] = {
    {"layout", "auto",
     "order of dimensions: hwc, chw, hw or auto (from the shape, if it is unambiguous)"},
    {"channels", "rgb", "order of colours: rgb or bgr"},
};

constexpr std::string_view kImages = "images", kLabels = "labels";

[[noreturn]] void refuse(const std::string& path, const std::string& problem) {
  throw ConfigError("the data file '" + path + "' " + problem +
                    "; expected uint8 images [N,H,W,C], [N,C,H,W] or [N,H,W] in images.npy and N "
                    "whole numbers in labels.npy; check --data-dir and the options of raw");
}

values::NumpyArray parse_file(const MappedFile& file) {
  try {
    return values::parse_npy(file.bytes());
  } catch (const DataError& error) {
    refuse(file.path(), std::string("is ") + error.what());
  }
}

bool is_images(std::string_view name) {
  return name.ends_with(".npy") && name.find(kImages) != std::string_view::npos;
}

std::string labels_beside(const std::string& images) {
  const std::size_t at = images.rfind(kImages);
  if (at == std::string::npos || images.find('/', at) != std::string::npos) {
    refuse(images,
           "has no 'images' in its name, so the name of its file of labels is unknown (it has "
           "'labels' instead)");
  }
  std::string labels = images;
  return labels.replace(at, kImages.size(), kLabels);
}

/// The layout of images in an array of that shape.
PixelLayout layout_of(const MappedFile& file, const values::NumpyArray& array,
                      const Options& options) {
  const std::string& wanted = options.text("layout");
  const bool bgr = options.choice("channels", {{"rgb"}, {"bgr"}}) == 1;
  const std::vector<std::int64_t>& shape = array.shape;
  if (array.type != values::NumpyType{'u', 1, array.type.big_endian}) {
    refuse(file.path(), "does not hold uint8 values");
  }
  if (array.fortran_order && shape.size() > 1) refuse(file.path(), "is in Fortran's order");
  const auto is_channels = [](std::int64_t length) { return length == 1 || length == 3; };
  const bool hwc = shape.size() == 4 && is_channels(shape[3]) && wanted != "chw";
  const bool chw = shape.size() == 4 && is_channels(shape[1]) && wanted != "hwc";
  const bool hw = shape.size() == 3;
  if (wanted != "auto" && !(wanted == "hwc" && hwc) && !(wanted == "chw" && chw) &&
      !(wanted == "hw" && hw)) {
    refuse(file.path(), "does not have the shape of layout=" + wanted);
  }
  if (hwc && chw) refuse(file.path(), "may be of layout=hwc or layout=chw: state which");
  if (!hwc && !chw && !hw) refuse(file.path(), "has another shape");
  const std::int64_t height = shape[chw ? 2 : 1], width = shape[chw ? 3 : 2],
                     channels = hw ? 1 : shape[chw ? 1 : 3];
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (height < 1 || width < 1 || height > kMost / channels / width) {
    refuse(file.path(), "has images of 0 bytes, or of 2 GiB or more");
  }
  return {.width = static_cast<std::int32_t>(width),
          .height = static_cast<std::int32_t>(height),
          .channels = static_cast<std::int32_t>(channels),
          .planar = chw,
          .bgr = bgr};
}

class ImageArrays final : public RecordFormat {
 public:
  ImageArrays(PixelLayout layout, Options options)
      : layout_(layout), options_(std::move(options)) {}

  SampleKind kind() const noexcept override { return SampleKind::pixels; }

  void index(const MappedFile& shard, const AddRecord& add) const override {
    const values::NumpyArray images = parse_file(shard);
    if (layout_of(shard, images, options_) != layout_) {
      refuse(shard.path(), "has images of another shape than the first file");
    }
    const MappedFile labels_file(labels_beside(shard.path()));
    const values::NumpyArray labels = parse_file(labels_file);
    const auto count = static_cast<std::uint64_t>(images.shape[0]);
    check_labels(labels_file, labels, count);
    const auto begin = static_cast<std::uint64_t>(images.data.data() - shard.bytes().data());
    const std::uint64_t whole = images.data.size() / layout_.bytes();
    for (std::uint64_t i = 0; i < whole; ++i) {
      const std::optional<std::int64_t> label =
          values::numpy_integer(labels.type, labels.data.subspan(i * labels.type.bytes));
      const bool fits = label && *label >= 0 && *label < std::numeric_limits<std::int32_t>::max();
      add({begin + i * layout_.bytes(), static_cast<std::uint32_t>(layout_.bytes()),
           fits ? static_cast<std::int32_t>(*label) : -1});
    }
    // The missing rest of a truncated file is one damaged record.
    const auto rest = static_cast<std::uint32_t>(images.data.size() - whole * layout_.bytes());
    if (whole < count) add({begin + whole * layout_.bytes(), rest, -1});
  }

  void open(Sample& sample) const override {
    if (sample.lent.size() != layout_.bytes()) {
      refuse_record(sample, "the file ends here, " + std::to_string(sample.lent.size()) +
                                " bytes into an image of " + std::to_string(layout_.bytes()));
    }
    if (sample.label < 0) refuse_record(sample, "its label is negative, or too large");
    sample.layout = layout_;
  }

 private:
  static void check_labels(const MappedFile& file, const values::NumpyArray& labels,
                           std::uint64_t count) {
    if (labels.type.kind != 'u' && labels.type.kind != 'i') {
      refuse(file.path(), "does not hold whole numbers");
    }
    // One dimension, or one column.
    const bool flat =
        labels.shape.size() == 1 || (labels.shape.size() == 2 && labels.shape[1] == 1);
    if (!flat || static_cast<std::uint64_t>(labels.shape[0]) != count) {
      refuse(file.path(),
             "does not hold one label for each of " + std::to_string(count) + " images");
    }
    if (labels.data.size() / labels.type.bytes != count) refuse(file.path(), "was cut");
  }

  const PixelLayout layout_;
  const Options options_;
};

std::unique_ptr<Source> make(const DataPlan& plan, const Options& options) {
  FileList files = list_shards(plan, is_images, "NumPy", "images.npy");
  const MappedFile first(files.path(0));
  const PixelLayout layout = layout_of(first, parse_file(first), options);
  return make_record_source(plan, std::move(files), std::make_unique<ImageArrays>(layout, options));
}

// ---- writer -----------------------------------------------------------------

constexpr std::size_t kHeaderBytes = 128;

/// The header of a .npy file, padded to kHeaderBytes.
std::string header(std::string_view type, const std::string& shape) {
  std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", type, shape);
  constexpr std::string_view kMagic("\x93NUMPY\x01\x00", 8);
  constexpr auto kLength = static_cast<std::uint16_t>(kHeaderBytes - kMagic.size() - 2);
  text.resize(kLength - 1, ' ');
  std::string bytes(kMagic);
  bytes += static_cast<char>(kLength & 0xff);
  bytes += static_cast<char>(kLength >> 8);
  return bytes + text + '\n';
}

class RawWriter final : public ShardedWriter {
 public:
  using ShardedWriter::ShardedWriter;

 private:
  std::string name(std::uint64_t shard, std::string_view what) const {
    return plan_.shards == 1 ? fmt::format("{}.npy", what)
                             : fmt::format("{:05}-{}.npy", shard, what);
  }
  std::string shard_name(std::uint64_t number) const override { return name(number, "images"); }

  void write(ShardFile& shard, std::uint64_t, std::span<const std::byte> image,
             std::int32_t label) override {
    if (labels_.empty()) shard.append_zeros(kHeaderBytes);  // until the labels are counted
    labels_.push_back(label);
    shard.append(image);
  }
  void end_shard(ShardFile& shard) override {
    const std::string images = header(
        "|u1", fmt::format("{}, {}, {}, 3", labels_.size(), plan_.image_size, plan_.image_size));
    shard.overwrite(0, std::as_bytes(std::span(images)));
    ShardFile labels(plan_.directory + "/" + name(shards_++, "labels"));
    labels.append(header("<i4", fmt::format("{},", labels_.size())));
    labels.append(std::as_bytes(std::span(labels_)));
    labels.close();
    labels_.clear();
  }

  std::vector<std::int32_t> labels_;  // of this shard
  std::uint64_t shards_ = 0;
};

}  // namespace

extern constinit const SourceEntry raw_source{
    .name = "raw",
    .summary = "pixels in NumPy files: images.npy and labels.npy",
    .options = kOptions,
    .make = make,
    .detects = [](std::string_view name) { return name.ends_with(".npy"); },
};

extern constinit const DatasetWriterEntry raw_dataset_writer{
    .name = "raw",
    .summary = "pixels in NumPy files: the centre of each image, at --image-size",
    .image_size = 224,
    .make = make_writer<RawWriter>,
};

}  // namespace penstock::datasets
