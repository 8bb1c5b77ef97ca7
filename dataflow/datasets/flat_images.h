// SPDX-License-Identifier: Apache-2.0
// Lists images that are all in one folder, as in ImageNet's validation set, with a text file of
// their labels. The lines of the text file have one of two forms:
//
//   NAME LABEL    for each image, in any order (Caffe's val.txt), also between commas, semicolons
//   or
//                 tabs, below a line of headings, and with names without an extension
//   LABEL         for each image, in byte order of the names (ImageNet's ground truth;
//                 TensorFlow's list of synsets)
//
// A label is a whole number or any other word. Words have the numbers of the class folders of those
// names, or else become the labels 0, 1, ... in byte order. A note says which, and of a heading.
#pragma once

#include <cstdint>
#include <string>

#include "dataflow/datasets/image_folder.h"

namespace penstock::datasets {

struct FlatImages {
  std::string directory, labels;  ///< the folder, the text file
  std::int64_t label_base = 0;    ///< number of the first class
  std::int32_t classes = 1000;    ///< labels must be below it
  /// Folder of the class folders that number words; auto: `train` beside the folder, if it exists
  /// and has one of the words.
  std::string class_folders = "auto";
};

/// The images, sorted by label and then by name. Throws ConfigError with file and line if the text
/// file does not match the folder.
ImageFiles list_flat_images(const FlatImages& images);

}  // namespace penstock::datasets
