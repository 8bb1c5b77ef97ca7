// SPDX-License-Identifier: Apache-2.0
// Reads a part of a file into the caller's buffer in one of three ways: pread through the page
// cache, O_DIRECT past it, or io_uring with many requests at once.
//
// Thread-safety: any number of callers, each with its own storage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dataflow/machine/input_file.h"

namespace penstock {

/// A file from which samples are read. It is open while it is in scope, and makes the error message
/// if the file cannot be read.
class SampleFile {
 public:
  /// `flags` of open(2) in addition to O_RDONLY and O_CLOEXEC. Throws DataError with the path.
  explicit SampleFile(const char* path, int flags = 0);

  int descriptor() const noexcept { return file_.descriptor(); }
  /// Size of a file that is to be read whole. Throws DataError if it is empty or larger than 256
  /// MiB, a hundred times the largest photographs.
  std::uint64_t size_to_read() const;
  /// Throws DataError with the path, the problem and what to do.
  [[noreturn]] void refuse(const std::string& problem) const;

 private:
  const char* const path_;
  const InputFile file_;
};

class FileReader {
 public:
  virtual ~FileReader() = default;

  /// Bytes [offset, offset + count) of a file, as a part of `storage`, which grows as needed and is
  /// reused from read to read. Throws DataError with the path.
  std::span<const std::byte> read(const char* path, std::uint64_t offset, std::uint64_t count,
                                  std::vector<std::byte>& storage) const;
  /// The whole of a regular file, which must not be empty or larger than 256 MiB.
  std::span<const std::byte> read(const char* path, std::vector<std::byte>& storage) const;

 protected:
  /// Flags of open(2) in addition to O_RDONLY and O_CLOEXEC.
  virtual int flags() const noexcept { return 0; }
  /// Reads from `offset` until `buffer` is full or the file ends. Returns the number of bytes read,
  /// or -1 with errno. The offset, the buffer's size and its address are multiples of
  /// kReadAlignment.
  virtual std::int64_t fill(int descriptor, std::span<std::byte> buffer,
                            std::uint64_t offset) const = 0;

 private:
  std::span<const std::byte> read_open(const SampleFile& file, std::uint64_t offset,
                                       std::uint64_t count, std::vector<std::byte>& storage) const;
};

/// The alignment of addresses, offsets and sizes that O_DIRECT needs on almost all devices.
constexpr std::size_t kReadAlignment = 4096;

/// `way` is pread, direct or uring. If `probed`, a file of the set, cannot be read in that way, or
/// this build lacks it, `note` says so and the reader uses pread. Throws ConfigError for other
/// words.
std::unique_ptr<FileReader> make_file_reader(const std::string& way, const char* probed,
                                             std::string& note);

/// Null, with errno, if the system refuses io_uring or this build lacks it.
std::unique_ptr<FileReader> make_uring_reader();

}  // namespace penstock
