// SPDX-License-Identifier: Apache-2.0
// Writes image folders: one folder per class, one file per image.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>

#include "dataflow/datasets/dataset_writer.h"
#include "dataflow/error.h"

namespace penstock::datasets {
namespace {

class ImageFolderWriter final : public DatasetWriter {
 public:
  explicit ImageFolderWriter(const WriterPlan& plan) : plan_(plan) {
    constexpr std::int32_t kMostClasses = 100'000;  // names have five digits, to sort as numbers
    if (plan.classes > kMostClasses) {
      throw ConfigError(
          "the data have labels up to {}, and a folder of classes takes at most {} of them; choose "
          "another format with --to",
          plan.classes - 1, kMostClasses);
    }
    // Makes folders for all classes, so that a class without images keeps its label.
    for (std::int32_t label = 0; label < plan.classes; ++label) {
      std::error_code error;
      std::filesystem::create_directory(folder(label), error);
      if (error) {
        throw ConfigError("cannot make the folder '{}': {}; choose another with --out",
                          folder(label), error.message());
      }
    }
  }

  void add(std::span<const std::byte> image, std::int32_t label) override {
    ShardFile file(fmt::format("{}/{:08}.JPEG", folder(label), samples_++));
    file.append(image);
    file.close();
  }
  void finish() override {}

 private:
  std::string folder(std::int32_t label) const {
    return fmt::format("{}/{:05}", plan_.directory, label);
  }

  const WriterPlan plan_;
  std::uint64_t samples_ = 0;
};

}  // namespace

extern constinit const DatasetWriterEntry image_folder_dataset_writer{
    .name = "image-folder",
    .summary = "one folder per class, one file per image",
    .make = make_writer<ImageFolderWriter>,
};

}  // namespace penstock::datasets
