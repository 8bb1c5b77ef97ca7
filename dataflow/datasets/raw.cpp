// SPDX-License-Identifier: Apache-2.0
// Pixels in NumPy files, for runs without decoding: images of one shape in files such as
// images.npy, [N,H,W,C], [N,C,H,W] or [N,H,W] of uint8, and a label for each in labels.npy beside
// it. Several pairs form one set: a-images.npy and a-labels.npy, b-images.npy and b-labels.npy.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "dataflow/datasets/dataset_writer.h"
#include "dataflow/datasets/image_arrays.h"
#include "dataflow/datasets/shard_list.h"
#include "dataflow/error.h"

namespace penstock::datasets {
namespace {

constexpr std::string_view kImages = "images", kLabels = "labels";

values::NumpyArray parse_file(const MappedFile& file) {
  try {
    return values::parse_npy(file.bytes());
  } catch (const DataError& error) {
    refuse_arrays(file.path(), std::string("is ") + error.what());
  }
}

bool is_images(std::string_view name) {
  return name.ends_with(".npy") && name.find(kImages) != std::string_view::npos;
}

std::string labels_beside(const std::string& images) {
  const std::size_t at = images.rfind(kImages);
  if (at == std::string::npos || images.find('/', at) != std::string::npos) {
    refuse_arrays(
        images,
        "has no 'images' in its name, so the name of its file of labels is unknown (it has "
        "'labels' instead)");
  }
  std::string labels = images;
  return labels.replace(at, kImages.size(), kLabels);
}

class NpyFiles final : public ImageArrayFormat {
 public:
  using ImageArrayFormat::ImageArrayFormat;

 private:
  ImageArrays find(const MappedFile& shard) const override {
    const auto labels = std::make_shared<MappedFile>(labels_beside(shard.path()));
    return {.images = parse_file(shard),
            .labels = parse_file(*labels),
            .label_path = labels->path(),
            .owner = labels};
  }
};

std::unique_ptr<Source> make(const DataPlan& plan, const Options& options) {
  FileList files = list_shards(plan, is_images, "NumPy", "images.npy");
  const MappedFile first(files.path(0));
  const PixelLayout layout = layout_of_images(first.path(), parse_file(first), options);
  return make_record_source(plan, std::move(files), std::make_unique<NpyFiles>(layout, options));
}

// ---- writer -----------------------------------------------------------------

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
    if (labels_.empty()) shard.append_zeros(kNpyHeaderBytes);  // until the labels are counted
    labels_.push_back(label);
    shard.append(image);
  }
  void end_shard(ShardFile& shard) override {
    const std::string images = npy_header(
        "|u1", fmt::format("{}, {}, {}, 3", labels_.size(), plan_.image_size, plan_.image_size));
    shard.overwrite(0, std::as_bytes(std::span(images)));
    ShardFile labels(fmt::format("{}/{}", plan_.directory, name(shards_++, "labels")));
    labels.append(npy_header("<i4", fmt::format("{},", labels_.size())));
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
    .options = kImageArrayOptions,
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
