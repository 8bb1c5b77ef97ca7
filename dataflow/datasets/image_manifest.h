// SPDX-License-Identifier: Apache-2.0
// Image folders that are listed once: a manifest beside the images, or elsewhere, has their names
// and when each class folder last changed. A folder's time changes when a file in it is made,
// removed or renamed, so that one look at each class tells whether the list still holds. What is
// in the files may change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>

#include "dataflow/image_files.h"

namespace penstock {

/// Where a folder's manifest lies, unless another place is stated; listings leave it out.
std::string default_manifest(const std::string& directory);

/// The files of `directory` by the manifest in `path`, which stays mapped. Throws ConfigError, with
/// both paths, where there is none, where it is damaged, or is not of the folder as it is now; and
/// where the folder has more than `classes` classes.
ImageFiles read_manifest(const std::string& directory, const std::string& path,
                         std::int32_t classes);

/// The same by the default manifest, where there is one that can be used, else by listing the
/// folder; the note says what was done.
ImageFiles list_or_read_manifest(const std::string& directory, std::int32_t classes,
                                 const std::stop_token& stop = {});

/// What was listed.
struct WrittenManifest {
  std::size_t classes = 0, files = 0;
  std::uint64_t bytes = 0;  ///< of the manifest
};

/// Lists `directory` and writes its manifest to `path`, in place of any that was there. Throws
/// ConfigError where either cannot be done, or where the folder changes meanwhile. Empty: stopped,
/// and nothing was written.
std::optional<WrittenManifest> write_manifest(const std::string& directory, const std::string& path,
                                              const std::stop_token& stop = {});

}  // namespace penstock
