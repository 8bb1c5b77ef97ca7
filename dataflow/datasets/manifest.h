// SPDX-License-Identifier: Apache-2.0
// Saves the listing of an image folder, so that later runs need not list it. A manifest, beside the
// images or elsewhere, holds the file names and the time of the last change of each class folder. A
// folder's time changes when a file in it is made, removed or renamed, so one look at each class
// folder shows whether the list is up to date. The content of the files may change.
//
// Numbers are little-endian:
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
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "dataflow/datasets/image_folder.h"

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

/// The default path of a folder's manifest. Listings leave it out.
std::string default_manifest(const std::string& directory);

/// The files of `directory` from the manifest in `path`, which stays mapped. Throws ConfigError
/// with both paths if there is no manifest, if it is damaged, if it does not match the folder's
/// current state, or if the folder has more than `classes` classes.
ImageFiles read_manifest(const std::string& directory, const std::string& path,
                         std::int32_t classes);

/// The files of `directory` from the default manifest if it is usable, otherwise from a listing.
/// The note says which.
ImageFiles list_or_read_manifest(const std::string& directory, std::int32_t classes,
                                 const std::stop_token& stop = {});

/// What write_manifest() listed.
struct WrittenManifest {
  std::size_t classes = 0, files = 0;
  std::uint64_t bytes = 0;  ///< size of the manifest
  std::string note;         ///< what the listing left out; may be empty
};

/// Lists `directory` and writes its manifest to `path`, in place of an existing one. Throws
/// ConfigError if either fails, or if the folder changes meanwhile. Empty: stopped, and nothing was
/// written.
std::optional<WrittenManifest> write_manifest(const std::string& directory, const std::string& path,
                                              const std::stop_token& stop = {});

}  // namespace penstock::datasets
