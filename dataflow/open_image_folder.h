// SPDX-License-Identifier: Apache-2.0
// The files of an image folder, as the options of the source `image-folder` say.
#pragma once

#include "dataflow/image_files.h"
#include "dataflow/options.h"
#include "dataflow/source.h"

namespace penstock {

inline constexpr OptionSpec kImageFolderOptions[] = {
    {"labels", "",
     "a text file of labels, for images that lie in one folder, as ImageNet's validation set does: "
     "lines of `NAME LABEL`, or a label for each image in byte order"},
    {"label_base", "0", "the number of the first class there"},
    {"manifest", "auto",
     "the saved list of files, from `penstock dataset index`: auto (.penstock-manifest in the "
     "folder, where it is there and still holds), off, or a file, which then has to hold"},
};

/// Throws ConfigError as the ways of listing do.
ImageFiles open_image_folder(const DataPlan& plan, const Options& options);

}  // namespace penstock
