// SPDX-License-Identifier: Apache-2.0
// The files of a folder of classes, each read when its turn comes.
#include "dataflow/image_files.h"
#include "dataflow/sample_order.h"
#include "dataflow/source.h"

namespace penstock {
namespace {

class ImageFolder final : public Source {
 public:
  explicit ImageFolder(const DataPlan& plan)
      : images_(list_image_files(plan.directory, plan.classes)),
        order_(plan, images_.labels.size()) {}

  bool next(Sample& sample) override {
    const std::optional<SampleOrder::Turn> turn = order_.next();
    if (!turn) return false;
    const char* const path = images_.files.path(turn->sample);
    sample.label = images_.labels[turn->sample];
    sample.index = turn->sample;
    sample.epoch = turn->epoch;
    sample.file = path;
    sample.offset = 0;
    sample.lent = {};
    read_image_file(path, sample.bytes);
    return true;
  }

  std::uint64_t size() const noexcept override { return order_.size(); }
  std::int32_t classes() const noexcept override { return images_.classes; }
  const FileList* files() const noexcept override { return &images_.files; }

 private:
  const ImageFiles images_;
  SampleOrder order_;
};

std::unique_ptr<Source> make(const DataPlan& plan, const Options&) {
  return std::make_unique<ImageFolder>(plan);
}

}  // namespace

extern constinit const SourceEntry image_folder_source{
    .name = "image-folder",
    .summary = "a folder of classes, as ImageNet is unpacked: directory/<class>/<image>",
    .make = make,
};

}  // namespace penstock
