// SPDX-License-Identifier: Apache-2.0
// Parses and writes the bytes of an image folder's saved list. Numbers are little-endian.
//
//   "penstock list\r\n\0"      16 bytes, which text conversions change
//   u32 version (1)
//   u32 CRC32C of everything after it
//   u64 classes, u64 files, u64 bytes of the names below
//   { u64 files, i64 modified } for each class; modified: nanoseconds since 1970
//   names of the classes, then of the files class by class, each closed by a zero
//
// Classes, and files within each class, are in byte order, and no name appears twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::datasets {

struct ManifestClass {
  std::string_view name;
  std::uint64_t files = 0;
  std::int64_t modified = 0;  ///< the folder's time, in nanoseconds since 1970
};

struct Manifest {
  std::vector<ManifestClass> classes;
  std::uint64_t files = 0;  ///< less than 2^32
  std::string_view names;   ///< of the files, each closed by a zero
};

/// Views of `bytes`. Checks everything: names have no slash, no zero and no leading dot. Throws
/// DataError that says what is wrong, without a path.
Manifest parse_manifest(std::span<const std::byte> bytes);

/// Everything before the names of the files, with the checksum over those names.
std::string manifest_head(const Manifest& manifest);

}  // namespace penstock::datasets
