// SPDX-License-Identifier: Apache-2.0
// Maps a file into memory, read-only and without a copy: it uses the page cache's own pages. If the
// file is truncated while it is mapped, the program ends with a signal, as with any mapped file.
// A compressed file is not mapped: its decompressed content is held instead.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace penstock::datasets {

class MappedFile {
 public:
  /// Throws ConfigError with the path if it is not a readable regular file.
  explicit MappedFile(std::string path);
  /// Holds what was made of the file.
  MappedFile(std::string path, std::vector<std::byte> content);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();

  bool is_mapped() const noexcept { return content_.empty(); }
  /// The whole file, or what is held; empty for an empty file. Valid as long as this object exists.
  std::span<const std::byte> bytes() const noexcept { return bytes_; }
  const std::string& path() const noexcept { return path_; }

  /// Releases the pages that were read. They stay in the page cache, which cannot drop pages that a
  /// process holds.
  void release_pages() const noexcept;

 private:
  std::string path_;
  std::vector<std::byte> content_;  // empty: the file is mapped
  std::span<const std::byte> bytes_;
};

}  // namespace penstock::datasets
