// SPDX-License-Identifier: Apache-2.0
// The binary version of CIFAR-10: records of a byte of label and three planes of 32x32 pixels, in
// the five files of its training set.
#include <fmt/format.h>

#include <array>

#include "bench/dataset/shard_file.h"
#include "dataflow/error.h"

namespace penstock::dataset {
namespace {

constexpr std::size_t kPixels = std::size_t{32} * 32;
constexpr std::int32_t kClasses = 10;

class Cifar10Writer final : public ShardedWriter {
 public:
  explicit Cifar10Writer(const WriterPlan& plan) : ShardedWriter(plan) {
    if (plan.classes <= kClasses && plan.image_size == 32 && plan.shards == 5) return;
    throw ConfigError(fmt::format(
        "the data have {} classes and {} samples; CIFAR-10 has at most {} classes, at least five "
        "samples, and images of 32x32; choose other data or another format",
        plan.classes, plan.samples, kClasses));
  }

 private:
  std::string shard_name(std::uint64_t number) const override {
    return fmt::format("data_batch_{}.bin", number + 1);
  }
  void write(ShardFile& shard, std::uint64_t, std::span<const std::byte> image,
             std::int32_t label) override {
    std::array<std::byte, 1 + 3 * kPixels> record{};
    record[0] = static_cast<std::byte>(label);
    for (std::size_t i = 0; i < kPixels; ++i) {
      for (std::size_t c = 0; c < 3; ++c) record[1 + c * kPixels + i] = image[3 * i + c];
    }
    shard.append(record);
  }
};

}  // namespace

extern constinit const DatasetWriterEntry cifar10_dataset_writer{
    .name = "cifar10",
    .summary = "the binary format of CIFAR-10: the centre of each image at 32x32",
    .image_size = 32,
    .shards = 5,
    .make = make_writer<Cifar10Writer>,
};

}  // namespace penstock::dataset
