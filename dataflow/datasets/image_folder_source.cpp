// SPDX-License-Identifier: Apache-2.0
// The source of image folders, which reads each file when its turn comes.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "dataflow/datasets/flat_images.h"
#include "dataflow/datasets/image_folder.h"
#include "dataflow/datasets/manifest.h"
#include "dataflow/datasets/sample_order.h"
#include "dataflow/error.h"
#include "dataflow/source.h"

namespace penstock::datasets {
namespace {

constexpr OptionSpec kOptions[] = {
    {"labels", "",
     "text file of labels for images in one folder, such as ImageNet's validation set: lines of "
     "`NAME LABEL` or `NAME,LABEL`, or one label per image in byte order of names"},
    {"label_base", "0", "number of the first class in the file of labels"},
    {"class_folders", "auto",
     "folder of class folders that number the words in the file of labels; auto: train beside the "
     "images, if it has them"},
    {"manifest", "auto",
     "saved list of files from `penstock dataset index`: auto (.penstock-manifest in the folder, "
     "if it is up to date), off, or a file, which must be up to date"},
};

/// Reads each file when its turn comes.
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

  SourceFacts facts() const override {
    return {.size = order_.size(),
            .size_over_ranks = order_.size_over_ranks(),
            .classes = images_.classes(),
            .files = &images_.files,
            .note = images_.note};
  }

 private:
  const ImageFiles images_;
  SampleOrder order_;
};

std::unique_ptr<Source> make(const DataPlan& plan, const Options& options) {
  return std::make_unique<ImageFolder>(plan, open_image_folder(plan, options));
}

}  // namespace

ImageFiles open_image_folder(const DataPlan& plan, const Options& options) {
  const std::string &labels = options.text("labels"), &manifest = options.text("manifest");
  const bool named = manifest != "auto" && manifest != "off";
  if (!labels.empty()) {
    if (named) {
      throw ConfigError(
          "image-folder: labels={} lists one folder, and manifest={} the class folders of another; "
          "leave one of them out",
          labels, manifest);
    }
    return list_flat_images({.directory = plan.directory,
                             .labels = labels,
                             .label_base = options.integer("label_base"),
                             .classes = plan.classes,
                             .class_folders = options.text("class_folders")});
  }
  if (named) return read_manifest(plan.directory, manifest, plan.classes);
  ImageFiles images = manifest == "off"
                          ? list_image_files(plan.directory, plan.classes, plan.stop)
                          : list_or_read_manifest(plan.directory, plan.classes, plan.stop);
  plan.expect_no_stop();
  return images;
}

extern constinit const SourceEntry image_folder_source{
    .name = "image-folder",
    .summary = "a folder of class folders, as ImageNet unpacks: directory/<class>/<image>",
    .options = kOptions,
    .class_folders = true,
    .make = make,
};

}  // namespace penstock::datasets
