// SPDX-License-Identifier: Apache-2.0
// The regular files of a tar archive: POSIX ustar and pax (IEEE 1003.1-2017, pax, "pax Interchange
// Format"), GNU tar's long names and large sizes, and the tar of Unix V7. No files, no threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "dataflow/packed/byte_stream.h"

namespace penstock {

struct TarMember {
  std::string name;
  std::uint64_t begin = 0;  ///< of its first header, in the stream
  std::uint64_t data = 0;   ///< of its data
  std::uint64_t bytes = 0;  ///< of its data
};

class TarReader {
 public:
  /// Reads from `stream`, which lives longer than this. Archives with files of more than
  /// `max_bytes` end there: what is compressed can be passed over no faster than it is read.
  explicit TarReader(ByteStream& stream, std::uint64_t max_bytes = ~std::uint64_t{0})
      : stream_(stream), max_bytes_(max_bytes) {}

  /// The next regular file; what is left of the one before is passed over, and so are folders,
  /// links and devices. False: the archive has ended. Throws DataError, with the problem alone,
  /// for what is no header: begin() then says where, and nothing behind it can be read.
  bool next(TarMember& member);

  /// The next `to.size()` bytes of the member's data. Throws DataError where they are cut off.
  void read(std::span<std::byte> to);
  /// Passes over what is left of the member. Throws DataError where it is cut off.
  void finish();

  /// Where the headers of the member begin that next() gave, or was at when it threw.
  std::uint64_t begin() const noexcept { return begin_; }
  std::uint64_t position() const noexcept { return stream_.position(); }

 private:
  static constexpr std::size_t kBlock = 512;
  struct Header;
  /// What the headers in front of a member say of it.
  struct Extension {
    std::string name;
    std::uint64_t bytes = 0;
    bool has_name = false, has_bytes = false;
  };

  bool read_block();
  void check_end();
  std::string read_extension(std::uint64_t bytes);

  ByteStream& stream_;
  const std::uint64_t max_bytes_;
  std::array<std::byte, kBlock> block_{};
  std::uint64_t begin_ = 0;
  std::uint64_t unread_ = 0, padding_ = 0;  // of the member's data, and behind it
};

}  // namespace penstock
