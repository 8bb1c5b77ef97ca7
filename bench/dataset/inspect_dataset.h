// SPDX-License-Identifier: Apache-2.0
// Lists the contents of a data set from directory entries, records and image headers, without
// decoding. Bad files and records are reported and never fatal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "bench/dataset/jpeg_file.h"

namespace penstock::dataset {

struct ClassInventory {
  std::string name;
  std::int32_t label = 0;
  std::int64_t bytes = 0;
  // Readable images; one of the two lists is empty.
  std::vector<std::string> files;      ///< for a folder of class folders: paths, sorted
  std::vector<std::uint64_t> samples;  ///< for any other source: Sample::index, in its order

  std::size_t images() const noexcept { return files.size() + samples.size(); }
};

/// A file, or "sample 7" if samples are not files.
struct OddFile {
  std::string path, reason;
};

struct InspectDataset {
  std::string directory{};      ///< as --data-dir of a run
  std::string source = "auto";  ///< as queue's option `source`
};

struct DatasetInventory {
  InspectDataset of;
  std::string format;                   ///< the source's name: "image-folder", "tfrecord"
  std::string note;                     ///< Source::note() of a set that is not a folder
  std::vector<ClassInventory> classes;  ///< in the order of their labels
  std::vector<OddFile> odd;             ///< unreadable, misnamed, truncated or misplaced

  // Figures of all readable images. Pixels have no subsampling and no scans; their colour space
  // names their channels: "RGB pixels".
  std::vector<double> file_bytes, widths, heights;
  std::map<std::string, std::int64_t> sizes, subsamplings, colour_spaces;  ///< counts by name
  std::int64_t progressive = 0, portrait = 0;

  std::int64_t images() const noexcept { return static_cast<std::int64_t>(file_bytes.size()); }
};

/// Throws ConfigError if there is no such data set or no image in it. After a stop request the
/// result is incomplete.
DatasetInventory inspect_dataset(const InspectDataset& order, const std::stop_token& stop);

/// Returns pictures of the samples with these indices, at most width x height. Samples that cannot
/// be decoded have no picture and are added to the odd ones of `inventory`. After a stop request,
/// pictures are missing. Makes a second pass over the set, up to the last requested sample.
std::map<std::uint64_t, Photo> draw_samples(DatasetInventory& inventory,
                                            std::set<std::uint64_t> indices, std::int32_t width,
                                            std::int32_t height, const std::stop_token& stop);

/// For people: a few lines for the whole set, and one for each class.
std::string to_text(const DatasetInventory& inventory);
nlohmann::ordered_json to_json(const DatasetInventory& inventory);

}  // namespace penstock::dataset
