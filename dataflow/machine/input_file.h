// SPDX-License-Identifier: Apache-2.0
// Opens every file that the user names or that belongs to a data set; use nothing else for that. It
// refuses a FIFO, a device or a folder at once: to open a FIFO would block until it has a writer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "dataflow/machine/file_descriptor.h"

namespace penstock {

/// A regular file, open for reading during the lifetime of this object.
class InputFile {
 public:
  /// `flags` of open(2) in addition to O_RDONLY and O_CLOEXEC.
  explicit InputFile(const char* path, int flags = 0) noexcept;
  explicit InputFile(const std::filesystem::path& path) noexcept : InputFile(path.c_str()) {}

  explicit operator bool() const noexcept { return static_cast<bool>(descriptor_); }
  /// The reason if the file is not open: "No such file or directory", "it is not a regular file".
  std::string problem() const;
  /// The reason as an error number; 0 if the file is open, or is not a regular file.
  int error() const noexcept { return error_; }

  int descriptor() const noexcept { return descriptor_.get(); }
  /// Hands over the descriptor. The caller must close it.
  int release() noexcept { return descriptor_.release(); }
  /// Size in bytes when the file was opened.
  std::uint64_t size() const noexcept { return size_; }
  /// The whole content. Throws DataError, with only the reason as text, if the file is not open,
  /// has more than `most` bytes or cannot be read.
  std::string text(std::uint64_t most = kMost) const { return content<std::string>(most); }
  /// At most `count` bytes from byte `begin` on: fewer if the file ends or cannot be read.
  std::string part(std::uint64_t begin, std::size_t count) const;
  std::vector<std::byte> bytes(std::uint64_t most = kMost) const {
    return content<std::vector<std::byte>>(most);
  }

 private:
  static constexpr std::uint64_t kMost = std::uint64_t{1} << 32;
  template <typename Bytes>
  Bytes content(std::uint64_t most) const;

  FileDescriptor descriptor_;
  int error_ = 0;
  std::uint64_t size_ = 0;
};

}  // namespace penstock
