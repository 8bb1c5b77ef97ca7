// SPDX-License-Identifier: Apache-2.0
// The source for a folder of classes. It reads each file when its turn comes.
#include <utility>

#include "dataflow/datasets/image_files.h"
#include "dataflow/datasets/open_image_folder.h"
#include "dataflow/datasets/sample_order.h"
#include "dataflow/source.h"

namespace penstock::datasets {
namespace {

class ImageFolder final : public Source {
 public:
  ImageFolder(const DataPlan& plan, ImageFiles images)
      : images_(std::move(images)), order_(plan, images_.files.size()) {}

  bool next(Sample& sample) override {
    const std::optional<SampleOrder::Turn> turn = order_.next();
    if (!turn) return false;
    sample.label = images_.label(turn->sample);
    sample.index = turn->sample;
    sample.epoch = turn->epoch;
    images_.files.path(turn->sample, sample.file);
    sample.offset = 0;
    sample.lent = {};
    sample.bytes.clear();
    return true;
  }

  void load(Sample& sample) const override { read_image_file(sample.file, sample.bytes); }

  std::uint64_t size() const noexcept override { return order_.size(); }
  std::uint64_t size_over_ranks() const noexcept override { return order_.size_over_ranks(); }
  std::int32_t classes() const noexcept override { return images_.classes(); }
  const FileList* files() const noexcept override { return &images_.files; }
  std::string note() const override { return images_.note; }

 private:
  const ImageFiles images_;
  SampleOrder order_;
};

std::unique_ptr<Source> make(const DataPlan& plan, const Options& options) {
  return std::make_unique<ImageFolder>(plan, open_image_folder(plan, options));
}

}  // namespace

extern constinit const SourceEntry image_folder_source{
    .name = "image-folder",
    .summary = "a folder of class folders, as ImageNet unpacks: directory/<class>/<image>",
    .options = kImageFolderOptions,
    .class_folders = true,
    .make = make,
};

}  // namespace penstock::datasets
