// SPDX-License-Identifier: Apache-2.0
// What a data set holds, from directory entries, records and image headers: nothing is decoded.
// Files and records that are not what they should be are named, never fatal.
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
  std::int32_t label = 0;
  std::int64_t bytes = 0;
  // Readable images: one of these is empty.
  std::vector<std::string> files;      ///< of a folder of class folders: paths, sorted
  std::vector<std::uint64_t> samples;  ///< of any other source: Sample::index, in its order

  std::size_t images() const noexcept { return files.size() + samples.size(); }
};

/// A file, or "sample 7" of a set whose samples are not files.
struct OddFile {
  std::string path, reason;
};

struct InspectDataset {
  std::string directory{};      ///< what --data-dir of a run would be
  std::string source = "auto";  ///< as queue's option `source`
};

struct DatasetInventory {
  InspectDataset of;
  std::string format;                   ///< the source's name: "image-folder", "tfrecord"
  std::string note;                     ///< Source::note() of a set that is no folder
  std::vector<ClassInventory> classes;  ///< in the order of their labels
  std::vector<OddFile> odd;             ///< unreadable, misnamed, cut short or in the wrong place

  // Of all readable images. Pixels have neither a subsampling nor scans; their colours are those of
  // their channels: "RGB pixels".
  std::vector<double> file_bytes, widths, heights;
  std::map<std::string, std::int64_t> sizes, subsamplings, colour_spaces;  ///< counts by name
  std::int64_t progressive = 0, portrait = 0;

  std::int64_t images() const noexcept { return static_cast<std::int64_t>(file_bytes.size()); }
};

/// Throws ConfigError when there is no such data set or no image in it. A requested stop means that
/// it was given up, and that the result is incomplete.
DatasetInventory inspect_dataset(const InspectDataset& order, const std::stop_token& stop);

/// For people: a few lines for the whole, and one for each class.
std::string to_text(const DatasetInventory& inventory);
nlohmann::ordered_json to_json(const DatasetInventory& inventory);

}  // namespace penstock
