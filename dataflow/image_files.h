// SPDX-License-Identifier: Apache-2.0
// A folder of classes as ImageNet is unpacked: `directory/<class>/<image>`. Classes in byte order
// are the labels 0, 1, ..., as torchvision's ImageFolder numbers them. Names that begin with a dot
// are ignored. Files are listed by their extension; whether they are images, decoding tells.
//
// Memory: all paths in one block, and twelve bytes a file beside it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "dataflow/file_list.h"

namespace penstock {

struct ImageFiles {
  FileList files;
  std::vector<std::int32_t> labels;  ///< by file; ascending
  std::int32_t classes = 0;
};

/// All images below `directory`, class by class, in byte order. Throws ConfigError, with the path,
/// where there are none, where they cannot be listed, or where there are more than `classes`
/// classes.
ImageFiles list_image_files(const std::string& directory, std::int32_t classes);

/// Fills `bytes` with the whole file. Throws DataError, with the path.
void read_image_file(const char* path, std::vector<std::byte>& bytes);

}  // namespace penstock
