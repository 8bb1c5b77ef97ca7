// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/open_image_folder.h"

#include "dataflow/datasets/flat_images.h"
#include "dataflow/datasets/image_manifest.h"
#include "dataflow/error.h"

namespace penstock::datasets {

ImageFiles open_image_folder(const DataPlan& plan, const Options& options) {
  const std::string &labels = options.text("labels"), &manifest = options.text("manifest");
  const bool named = manifest != "auto" && manifest != "off";
  if (!labels.empty()) {
    if (named) {
      throw ConfigError("image-folder: labels=" + labels + " lists one folder, and manifest=" +
                        manifest + " the class folders of another; leave one of them out");
    }
    return list_flat_images({.directory = plan.directory,
                             .labels = labels,
                             .label_base = options.integer("label_base"),
                             .classes = plan.classes});
  }
  if (named) return read_manifest(plan.directory, manifest, plan.classes);
  ImageFiles images = manifest == "off"
                          ? list_image_files(plan.directory, plan.classes, plan.stop)
                          : list_or_read_manifest(plan.directory, plan.classes, plan.stop);
  plan.expect_no_stop();
  return images;
}

}  // namespace penstock::datasets
