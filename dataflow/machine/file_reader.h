// SPDX-License-Identifier: Apache-2.0
// Ways to have a part of a file read into a buffer of one's own: pread through the page cache,
// O_DIRECT past it, and io_uring with many requests at once.
//
// Thread-safety: any number of callers, each with storage of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace penstock {

class SampleFile;

class FileReader {
 public:
  virtual ~FileReader() = default;

  /// Bytes [offset, offset + count) of a file, as a part of `storage`, which grows to what it takes
  /// and is used again from read to read. Throws DataError, with the path.
  std::span<const std::byte> read(const char* path, std::uint64_t offset, std::uint64_t count,
                                  std::vector<std::byte>& storage) const;
  /// The whole of a regular file that is neither empty nor beyond 256 MiB.
  std::span<const std::byte> read(const char* path, std::vector<std::byte>& storage) const;

 protected:
  /// Flags of open(2) besides O_RDONLY and O_CLOEXEC.
  virtual int flags() const noexcept { return 0; }
  /// Reads from `offset` until `buffer` is full or the file ends; gives the bytes read, or -1 with
  /// errno. Both and the size are multiples of kAlignment, and so is the buffer's address.
  virtual std::int64_t fill(int descriptor, std::span<std::byte> buffer,
                            std::uint64_t offset) const = 0;

 private:
  std::span<const std::byte> read_open(const SampleFile& file, std::uint64_t offset,
                                       std::uint64_t count, std::vector<std::byte>& storage) const;
};

/// What O_DIRECT asks of addresses, offsets and sizes, on all devices but rare ones.
constexpr std::size_t kReadAlignment = 4096;

/// `way` is pread, direct or uring. Where `probed`, a file of the set, cannot be read in that way,
/// or this program was built without it, that is told in `note` and the reader is one of pread.
/// Throws ConfigError for other words.
std::unique_ptr<FileReader> make_file_reader(const std::string& way, const char* probed,
                                             std::string& note);

/// Null, with errno, where the system refuses io_uring, or the program was built without it.
std::unique_ptr<FileReader> make_uring_reader();

}  // namespace penstock
