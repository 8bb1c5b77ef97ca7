// SPDX-License-Identifier: Apache-2.0
// Reads ZIP archives with members that are stored or deflated, and of any size (zip64): what Python
// and NumPy write. It maps bytes to bytes and opens no files.
//
//   members: local header, content -> central directory: an entry for each -> end of the directory
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace penstock::datasets {

struct ZipMember {
  std::string name;
  std::uint16_t method = 0;  ///< 0: stored, 8: deflated
  std::uint32_t crc = 0;     ///< of the content
  std::uint64_t packed_bytes = 0, bytes = 0;
  std::uint64_t header = 0;  ///< offset of the local header
};

/// The members in the order of the central directory. Throws DataError if there is no directory or
/// if it is damaged.
std::vector<ZipMember> list_zip(std::span<const std::byte> archive);

/// The first `most` bytes of a member's content, or all of it, whose CRC is then compared. Throws
/// DataError if the member is damaged, encrypted, or claims more bytes than Deflate can give.
std::vector<std::byte> read_zip_member(std::span<const std::byte> archive, const ZipMember& member,
                                       std::uint64_t most = ~std::uint64_t{0});

}  // namespace penstock::datasets
