// SPDX-License-Identifier: Apache-2.0
// The saved list of an image folder: bytes in, views out. Numbers have their least byte first.
//
//   "penstock list\r\n\0"      16 bytes, which text conversions change
//   u32 version (1)
//   u32 CRC32C of all behind it
//   u64 classes, u64 files, u64 bytes of the names below
//   { u64 files, i64 modified } for each class; modified: nanoseconds since 1970
//   names of the classes, then of the files class by class, each closed by a zero
//
// Classes, and files within each, are in byte order, and no name is there twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

struct ManifestClass {
  std::string_view name;
  std::uint64_t files = 0;
  std::int64_t modified = 0;  ///< of the folder, nanoseconds since 1970
};

struct Manifest {
  std::vector<ManifestClass> classes;
  std::uint64_t files = 0;  ///< less than 2^32
  std::string_view names;   ///< of the files, each closed by a zero
};

/// Views of `bytes`, of which all is checked: names have no slash, no zero and no leading dot.
/// Throws DataError that says what is wrong, without a path.
Manifest parse_manifest(std::span<const std::byte> bytes);

/// All that stands in front of the names of the files. Says their checksum as well.
std::string manifest_head(const Manifest& manifest);

}  // namespace penstock
