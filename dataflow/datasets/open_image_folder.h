// SPDX-License-Identifier: Apache-2.0
// Opens the files of an image folder by the options of the source `image-folder`.
#pragma once

#include "dataflow/datasets/image_files.h"
#include "dataflow/options.h"
#include "dataflow/source.h"

namespace penstock::datasets {

inline constexpr OptionSpec kImageFolderOptions[] = {
    {"labels", "",
     "text file of labels for images in one folder, such as ImageNet's validation set: lines of "
     "`NAME LABEL`, or one label per image in byte order of names"},
    {"label_base", "0", "number of the first class in the file of labels"},
    {"manifest", "auto",
     "saved list of files from `penstock dataset index`: auto (.penstock-manifest in the folder, "
     "if it is up to date), off, or a file, which must be up to date"},
};

/// Throws ConfigError as the functions that list folders do.
ImageFiles open_image_folder(const DataPlan& plan, const Options& options);

}  // namespace penstock::datasets
