// SPDX-License-Identifier: Apache-2.0
// Saves the listing of an image folder, so that later runs need not list it. A manifest, beside the
// images or elsewhere, holds the file names and the time of the last change of each class folder. A
// folder's time changes when a file in it is made, removed or renamed, so one look at each class
// folder shows whether the list is up to date. The content of the files may change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>

#include "dataflow/datasets/image_files.h"

namespace penstock::datasets {

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
};

/// Lists `directory` and writes its manifest to `path`, in place of an existing one. Throws
/// ConfigError if either fails, or if the folder changes meanwhile. Empty: stopped, and nothing was
/// written.
std::optional<WrittenManifest> write_manifest(const std::string& directory, const std::string& path,
                                              const std::stop_token& stop = {});

}  // namespace penstock::datasets
