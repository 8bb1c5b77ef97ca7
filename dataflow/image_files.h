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
#include <string_view>
#include <vector>

namespace penstock {

/// Many paths in one block.
class FileList {
 public:
  void add(std::string_view path) {
    offsets_.push_back(paths_.size());
    paths_ += path;
    paths_ += '\0';
  }
  std::size_t size() const noexcept { return offsets_.size(); }
  /// Closed by a zero; lives as long as the list does not change.
  const char* path(std::size_t index) const noexcept { return paths_.data() + offsets_[index]; }
  void shrink_to_fit() {
    paths_.shrink_to_fit();
    offsets_.shrink_to_fit();
  }

 private:
  std::string paths_;  // each closed by a zero
  std::vector<std::uint64_t> offsets_;
};

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
