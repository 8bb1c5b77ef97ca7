// SPDX-License-Identifier: Apache-2.0
// A file's bytes in memory, read-only, without a copy: the page cache's own pages. A file that is
// cut while it is mapped ends the program, as it does any that maps files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace penstock {

class MappedFile {
 public:
  /// Throws ConfigError, with the path, for what is no readable regular file.
  explicit MappedFile(std::string path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();

  /// All of it; empty for an empty file. Lives as long as this.
  std::span<const std::byte> bytes() const noexcept { return bytes_; }
  const std::string& path() const noexcept { return path_; }

  /// Asks the system to have bytes [offset, offset + count) at hand soon. Costs a system call.
  void will_need(std::uint64_t offset, std::uint64_t count) const noexcept;

  /// Lets go of the pages that were looked at. They stay in the page cache, which cannot drop pages
  /// that a process holds.
  void let_go() const noexcept;

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
};

}  // namespace penstock
