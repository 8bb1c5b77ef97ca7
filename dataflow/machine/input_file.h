// SPDX-License-Identifier: Apache-2.0
// THE way to open a file that the user named or that lies in a data set. A FIFO, a device or a
// folder is refused at once: opening a FIFO would wait for its writer for ever.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace penstock {

/// A regular file, open for reading while this object lives.
class InputFile {
 public:
  /// `flags` of open(2) besides O_RDONLY and O_CLOEXEC.
  explicit InputFile(const char* path, int flags = 0) noexcept;
  explicit InputFile(const std::filesystem::path& path) noexcept : InputFile(path.c_str()) {}
  InputFile(InputFile&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)),
        error_(other.error_),
        size_(other.size_) {}
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  explicit operator bool() const noexcept { return descriptor_ >= 0; }
  /// Why the file is not open: "No such file or directory", "it is no regular file".
  std::string problem() const;
  /// The same as an error number; 0: it is open, or it is no regular file.
  int error() const noexcept { return error_; }

  int descriptor() const noexcept { return descriptor_; }
  /// The caller closes it from now on.
  int release() noexcept { return std::exchange(descriptor_, -1); }
  /// In bytes, when it was opened.
  std::uint64_t size() const noexcept { return size_; }
  /// The whole content. Throws DataError with the reason alone if the file is not open, has more
  /// than `most` bytes or cannot be read.
  std::string text(std::uint64_t most = kMost) const { return content<std::string>(most); }
  std::vector<std::byte> bytes(std::uint64_t most = kMost) const {
    return content<std::vector<std::byte>>(most);
  }

 private:
  static constexpr std::uint64_t kMost = std::uint64_t{1} << 32;
  template <typename Bytes>
  Bytes content(std::uint64_t most) const;

  int descriptor_ = -1, error_ = 0;
  std::uint64_t size_ = 0;
};

}  // namespace penstock
