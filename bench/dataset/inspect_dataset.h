// SPDX-License-Identifier: Apache-2.0
// What a folder of class folders of JPEGs holds, from directory entries and image headers: nothing
// is decoded. Files that are not what they should be are named, never fatal.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <vector>

namespace penstock {

struct ClassInventory {
  std::string name;
  std::int64_t bytes = 0;
  std::vector<std::string> files;  ///< paths of readable JPEGs, sorted
};

struct OddFile {
  std::string path, reason;
};

struct DatasetInventory {
  std::string directory;
  std::vector<ClassInventory> classes;  ///< in the order of their labels
  std::vector<OddFile> odd;             ///< unreadable, misnamed, cut short or in the wrong place

  // Of all readable JPEGs.
  std::vector<double> file_bytes, widths, heights;
  std::map<std::string, std::int64_t> sizes, subsamplings, colour_spaces;  ///< counts by name
  std::int64_t progressive = 0, portrait = 0;

  std::int64_t images() const noexcept { return static_cast<std::int64_t>(file_bytes.size()); }
};

/// Throws ConfigError when there is no such folder or no image in it. An empty result of `images`
/// and a requested stop mean that it was given up.
DatasetInventory inspect_dataset(const std::string& directory, const std::stop_token& stop);

/// For people: a few lines for the whole, and one for each class.
std::string to_text(const DatasetInventory& inventory);
nlohmann::ordered_json to_json(const DatasetInventory& inventory);

}  // namespace penstock
