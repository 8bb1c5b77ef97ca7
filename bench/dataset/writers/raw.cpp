// SPDX-License-Identifier: Apache-2.0
// Pixels for NumPy: images.npy, uint8 [N, H, W, 3], and labels.npy, int32 [N]. With several shards,
// each has such a pair, 00000-images.npy and 00000-labels.npy.
//
//   npy := "\x93NUMPY", version 1.0, u16 length of the header, header: a Python dictionary, spaces
//          and a line feed up to a multiple of 64 bytes; then the array
#include <fmt/format.h>

#include <vector>

#include "bench/dataset/shard_file.h"

namespace penstock::dataset {
namespace {

constexpr std::size_t kHeaderBytes = 128;

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
    if (labels_.empty())
      shard.append_zeros(kHeaderBytes);  // a placeholder until the labels are
                                         // counted
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

extern constinit const DatasetWriterEntry raw_dataset_writer{
    .name = "raw",
    .summary = "pixels in NumPy files: the centre of each image, at --image-size",
    .image_size = 224,
    .make = make_writer<RawWriter>,
};

}  // namespace penstock::dataset
