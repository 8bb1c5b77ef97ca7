// SPDX-License-Identifier: Apache-2.0
// Reads the regular files of a tar archive: POSIX ustar and pax (IEEE 1003.1-2017, pax, "pax
// Interchange Format"), GNU tar's long names and large sizes, and the tar of Unix V7. It opens no
// files and starts no threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "dataflow/datasets/shard_stream.h"

namespace penstock::datasets {

struct TarMember {
  std::string name;
  std::uint64_t begin = 0;  ///< offset of its first header in the stream
  std::uint64_t data = 0;   ///< offset of its data
  std::uint64_t bytes = 0;  ///< size of its data
};

class TarReader {
 public:
  /// Reads from `stream`, which must outlive this object. A file of more than `max_bytes` ends the
  /// archive, since a compressed file takes as long to skip as to read.
  explicit TarReader(ByteStream& stream, std::uint64_t max_bytes = ~std::uint64_t{0})
      : stream_(stream), max_bytes_(max_bytes) {}

  /// Moves to the next regular file, past the rest of the current one and past folders, links and
  /// devices. False: the archive has ended. Throws DataError, with only the problem as text, for an
  /// invalid header; begin() is then its offset, and nothing after it can be read.
  bool next(TarMember& member);

  /// Reads the next `to.size()` bytes of the member's data. Throws DataError if they are truncated.
  void read(std::span<std::byte> to);
  /// Skips the rest of the member. Throws DataError if it is truncated.
  void finish();

  /// Offset of the headers of the member that next() gave, or at which it threw.
  std::uint64_t begin() const noexcept { return begin_; }
  std::uint64_t position() const noexcept { return stream_.position(); }

 private:
  static constexpr std::size_t kBlock = 512;
  struct Header;
  /// What the headers before a member say of it.
  struct Extension {
    std::optional<std::string> name;
    std::optional<std::uint64_t> bytes;
  };

  bool read_block();
  void check_end();
  std::string read_extension(std::uint64_t bytes);

  ByteStream& stream_;
  const std::uint64_t max_bytes_;
  std::array<std::byte, kBlock> block_{};
  std::uint64_t begin_ = 0;
  std::uint64_t unread_ = 0, padding_ = 0;  // of the member's data, and after them
};

}  // namespace penstock::datasets
