// SPDX-License-Identifier: Apache-2.0
// CIFAR-10 in its published form (Krizhevsky, "Learning multiple layers of features from tiny
// images", 2009): five training files and one test file of 10,000 images, each of 32x32 pixels in
// three planes. In the binary version, which is also written, a record is a byte of label and the
// pixels. In the Python version a file is a pickle: a dictionary with `data`, an array, and
// `labels`, a list.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>

#include "dataflow/datasets/dataset_writer.h"
#include "dataflow/datasets/record_source.h"
#include "dataflow/error.h"
#include "dataflow/values/value_tree.h"

namespace penstock::datasets {
namespace {

namespace fs = std::filesystem;

constexpr OptionSpec kOptions[] = {
    {"split", "auto", "part of the data: train, test or auto (test for evaluation, else train)"},
};

constexpr PixelLayout kLayout{.width = 32, .height = 32, .channels = 3, .planar = true};
constexpr std::int32_t kClasses = 10;
constexpr std::string_view kTrainNames[] = {"data_batch_1", "data_batch_2", "data_batch_3",
                                            "data_batch_4", "data_batch_5"};
constexpr std::string_view kTestNames[] = {"test_batch"};

class BinaryRecords final : public RecordFormat {
 public:
  void index(const MappedFile& shard, const AddRecord& add) const override {
    const std::span<const std::byte> bytes = shard.bytes();
    if (bytes.size() < kBytes) {
      throw ConfigError(
          "the data file '{}' has {} bytes; expected records of {}, as the binary version of "
          "CIFAR-10 has them; fetch it again",
          shard.path(), bytes.size(), kBytes);
    }
    for (std::uint64_t at = 0; at < bytes.size(); at += kBytes) {
      const auto length = static_cast<std::uint32_t>(std::min(kBytes, bytes.size() - at));
      const auto label = std::to_integer<std::int32_t>(bytes[at]);
      add({at, length, length == kBytes && label < kClasses ? label : -1});
    }
  }

  SampleKind kind() const noexcept override { return SampleKind::pixels; }

  void open(Sample& sample) const override {
    if (sample.lent.size() != kBytes) {
      refuse_record(sample,
                    fmt::format("the file ends after {} of {} bytes", sample.lent.size(), kBytes));
    }
    if (sample.label < 0) {
      refuse_record(sample, fmt::format("its label is {}, and there are {} classes",
                                        std::to_integer<int>(sample.lent.front()), kClasses));
    }
    sample.lent = sample.lent.subspan(1);
    sample.layout = kLayout;
  }

 private:
  static constexpr std::uint64_t kBytes = 1 + kLayout.bytes();
};

class PickledArrays final : public RecordFormat {
 public:
  void index(const MappedFile& shard, const AddRecord& add) const override {
    const auto refuse = [&](const std::string& problem) {
      throw ConfigError(
          "the data file '{}' {}; expected a file of the Python version of CIFAR-10; fetch it "
          "again",
          shard.path(), problem);
    };
    try {
      const values::ValueTree tree = values::parse_pickle(shard.bytes());
      const values::Value *data = tree.find(tree.root(), "data"),
                          *labels = tree.find(tree.root(), "labels");
      if (data == nullptr || data->kind != values::ValueKind::array || labels == nullptr ||
          labels->kind != values::ValueKind::list) {
        refuse("lacks data, an array, or labels, a list");
      }
      const values::NumpyArray& array = data->array;
      const bool bytes = array.type.kind == 'u' && array.type.bytes == 1;
      if (!bytes || array.data.size() != labels->items.size() * kLayout.bytes()) {
        refuse("does not hold a uint8 array of 3072 values for each label");
      }
      const std::byte* const begin = shard.bytes().data();
      if (!array.data.empty() &&
          (array.data.data() < begin || array.data.data() >= begin + shard.bytes().size())) {
        refuse("holds its array as text or in Fortran's order; write it again in C's, protocol 4");
      }
      std::uint64_t at = static_cast<std::uint64_t>(array.data.data() - begin);
      for (const values::ValueId id : labels->items) {
        const std::int64_t label = values::integer_of(tree.at(id)).value_or(-1);
        add({at, static_cast<std::uint32_t>(kLayout.bytes()),
             label >= 0 && label < kClasses ? static_cast<std::int32_t>(label) : -1});
        at += kLayout.bytes();
      }
    } catch (const DataError& error) {
      refuse(std::string("is ") + error.what());
    }
  }

  SampleKind kind() const noexcept override { return SampleKind::pixels; }

  void open(Sample& sample) const override {
    if (sample.label < 0) {
      refuse_record(sample, fmt::format("its label is none of {} classes", kClasses));
    }
    sample.layout = kLayout;
  }
};

/// The files' folder, and how their names end.
struct Version {
  fs::path folder;
  std::string ending;
  bool pickled = false;
};

/// Finds the version in `place`, or in the folder with the usual name below it.
Version find_version(const std::string& place) {
  const fs::path here(place);
  for (const Version& version : {Version{here, ".bin"},
                                 {here / "cifar-10-batches-bin", ".bin"},
                                 {here, "", true},
                                 {here / "cifar-10-batches-py", "", true}}) {
    for (const char* name : {"data_batch_1", "test_batch"}) {
      if (fs::exists(version.folder / (name + version.ending))) return version;
    }
  }
  throw ConfigError(
      "there is no CIFAR-10 in '{}': expected data_batch_1 to data_batch_5 and test_batch, with "
      ".bin or without, there or in cifar-10-batches-bin or cifar-10-batches-py; check --data-dir",
      place);
}

bool is_cifar10(std::string_view name) {
  return name.starts_with("data_batch_") || name == "test_batch" || name == "test_batch.bin" ||
         (name.starts_with("cifar-10-batches-") && name.ends_with('/'));
}

bool is_test(const DataPlan& plan, const Options& options) {
  const std::size_t split = options.choice("split", {{"train"}, {"test"}, {"auto"}});
  return split == 2 ? !plan.augment : split == 1;
}

std::unique_ptr<Source> make(const DataPlan& plan, const Options& options) {
  const Version version = find_version(plan.directory);
  const std::span<const std::string_view> names =
      is_test(plan, options) ? std::span<const std::string_view>(kTestNames) : kTrainNames;
  FileList files;
  for (const std::string_view name : names) {
    const fs::path file = version.folder / (std::string(name) + version.ending);
    if (!fs::exists(file)) {
      throw ConfigError(
          "the file '{}' of CIFAR-10 is missing; expected all files of a split; fetch it again, or "
          "choose the other split",
          file.string());
    }
    files.add(file.native());
  }
  if (version.pickled) {
    return make_record_source(plan, std::move(files), std::make_unique<PickledArrays>());
  }
  return make_record_source(plan, std::move(files), std::make_unique<BinaryRecords>());
}

// ---- writer -----------------------------------------------------------------

class Cifar10Writer final : public ShardedWriter {
 public:
  explicit Cifar10Writer(const WriterPlan& plan) : ShardedWriter(plan) {
    if (plan.classes <= kClasses && plan.image_size == 32 && plan.shards == 5) return;
    throw ConfigError(
        "the data have {} classes and {} samples; CIFAR-10 has at most {} classes, at least five "
        "samples, and images of 32x32; choose other data or another format",
        plan.classes, plan.samples, kClasses);
  }

 private:
  std::string shard_name(std::uint64_t number) const override {
    return fmt::format("data_batch_{}.bin", number + 1);
  }
  void write(ShardFile& shard, std::uint64_t, std::span<const std::byte> image,
             std::int32_t label) override {
    constexpr std::size_t kPixels = kLayout.bytes() / 3;
    std::array<std::byte, 1 + kLayout.bytes()> record{};
    record[0] = static_cast<std::byte>(label);
    for (std::size_t i = 0; i < kPixels; ++i) {
      for (std::size_t c = 0; c < 3; ++c) record[1 + c * kPixels + i] = image[3 * i + c];
    }
    shard.append(record);
  }
};

}  // namespace

extern constinit const SourceEntry cifar10_source{
    .name = "cifar10",
    .summary = "CIFAR-10 as distributed, in the binary or Python version: 32x32 pixels",
    .options = kOptions,
    .dataset = "cifar10",
    .make = make,
    .detects = is_cifar10,
};

extern constinit const DatasetWriterEntry cifar10_dataset_writer{
    .name = "cifar10",
    .summary = "the binary format of CIFAR-10: the centre of each image at 32x32",
    .image_size = 32,
    .shards = 5,
    .make = make_writer<Cifar10Writer>,
};

}  // namespace penstock::datasets
