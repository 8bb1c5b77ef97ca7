// SPDX-License-Identifier: Apache-2.0
// The interface for writing encoded images and their labels in a data set format.
//
// To add one: a file in writers/ that ends in `extern constinit const DatasetWriterEntry
// NAME_dataset_writer{...}`, and one line `penstock_component(dataset_writer NAME)` in
// bench/dataset/CMakeLists.txt. The source with the same name must be able to read its files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "dataflow/entry.h"

namespace penstock::dataset {

struct WriterPlan {
  std::string directory;        ///< exists and is empty
  std::uint64_t samples = 0;    ///< number of add() calls, above 0
  std::uint64_t shards = 1;     ///< number of files, at most `samples`
  std::int32_t classes = 1;     ///< labels are below this
  std::int32_t image_size = 0;  ///< height and width of pixels
};

class DatasetWriter {
 public:
  virtual ~DatasetWriter() = default;
  /// Writes the next sample, from 0 on: an encoded image, or pixels if the format holds pixels.
  /// Throws ConfigError, with the path, if it cannot be written or the format cannot hold it. One
  /// caller at a time.
  virtual void add(std::span<const std::byte> image, std::int32_t label) = 0;
  /// Call it after the last sample. Throws as add() does.
  virtual void finish() = 0;
};

template <typename Writer>
std::unique_ptr<DatasetWriter> make_writer(const WriterPlan& plan) {
  return std::make_unique<Writer>(plan);
}

struct DatasetWriterEntry {
  std::string_view name{}, summary{};
  /// Above 0: the format holds interleaved RGB pixels. This is the default size.
  std::int32_t image_size = 0;
  std::uint64_t shards = 0;  ///< above 0: a fixed number of files
  std::unique_ptr<DatasetWriter> (*make)(const WriterPlan&) = nullptr;  ///< usually make_writer
};

/// Every format in this build; generated from the component lists.
const Table<DatasetWriterEntry>& dataset_writer_table();

}  // namespace penstock::dataset
