// SPDX-License-Identifier: Apache-2.0
// A folder of classes as ImageNet is unpacked: `directory/<class>/<image>`. Classes in byte order
// are the labels 0, 1, ..., as torchvision's ImageFolder numbers them. Names that begin with a dot
// are ignored. Files are listed by their extension; whether they are images, decoding tells.
//
// Memory: the names of files in one block, and a place in it for every sixteenth.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "dataflow/file_list.h"

namespace penstock {

struct ImageFiles {
  FileList files;                 ///< sorted by label
  std::vector<std::size_t> ends;  ///< by label: how many files have that label or a smaller one
  std::string note;               ///< what should be known of the list; empty: nothing

  std::int32_t classes() const noexcept { return static_cast<std::int32_t>(ends.size()); }
  std::int32_t label(std::size_t file) const noexcept {
    return static_cast<std::int32_t>(std::ranges::upper_bound(ends, file) - ends.begin());
  }
};

/// Names of the class folders in `directory`, in byte order. Throws ConfigError, with the path,
/// where there are none, or more than `limit`.
std::vector<std::string> list_class_folders(const std::string& directory, std::int32_t limit);

/// All images below `directory`, class by class, in byte order. Throws ConfigError, with the path,
/// where there are none, where they cannot be listed, or where there are more than `classes`
/// classes. A stop request leaves out the classes that were not begun.
ImageFiles list_image_files(const std::string& directory, std::int32_t classes,
                            const std::stop_token& stop = {});

/// Names of the images that lie in `directory` itself, in byte order. Throws ConfigError, with the
/// path, where there are none, or where they cannot be listed.
std::vector<std::string> list_image_names(const std::string& directory);

/// Fills `bytes` with the whole file. Throws DataError, with the path.
void read_image_file(const std::string& path, std::vector<std::byte>& bytes);

}  // namespace penstock
