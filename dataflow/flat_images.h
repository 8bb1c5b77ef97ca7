// SPDX-License-Identifier: Apache-2.0
// Images that lie in one folder, as ImageNet's validation set is unpacked, with a text file of
// their labels. Its lines are one of
//
//   NAME LABEL    for each image, in any order (Caffe's val.txt)
//   LABEL         for each image in byte order of their names (ImageNet's ground truth;
//                 TensorFlow's list of synsets)
//
// A label is a whole number, or any other word: words in byte order are then the labels 0, 1, ....
#pragma once

#include <cstdint>
#include <string>

#include "dataflow/image_files.h"

namespace penstock {

struct FlatImages {
  std::string directory, labels;  ///< the folder, the text file
  std::int64_t label_base = 0;    ///< the number of the first class
  std::int32_t classes = 1000;    ///< labels lie below
};

/// Sorted by label, and by name where they agree. Throws ConfigError, with file and line, where the
/// two do not fit together.
ImageFiles list_flat_images(const FlatImages& images);

}  // namespace penstock
