// SPDX-License-Identifier: Apache-2.0
// Formats that encoded images and their labels can be written in.
//
// To add one: a file in writers/ that ends in `extern constinit const DatasetWriterEntry
// NAME_dataset_writer{...}`, and one line `penstock_component(dataset_writer NAME)` in
// bench/CMakeLists.txt. What it writes, the source of the same name reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "dataflow/entry.h"

namespace penstock {

struct WriterPlan {
  std::string directory;        ///< is there, and empty
  std::uint64_t samples = 0;    ///< add() will be called so often, above 0
  std::uint64_t shards = 1;     ///< files that the samples are shared out to, at most `samples`
  std::int32_t classes = 1;     ///< labels lie below
  std::int32_t image_size = 0;  ///< of pixels: height and width
};

class DatasetWriter {
 public:
  virtual ~DatasetWriter() = default;
  /// The next sample, from 0 on: an encoded image, or pixels where the format holds those. Throws
  /// ConfigError, with the path, where it cannot be written or the format cannot hold it. One
  /// caller at a time.
  virtual void add(std::span<const std::byte> image, std::int32_t label) = 0;
  /// Behind the last sample. Throws as add() does.
  virtual void finish() = 0;
};

struct DatasetWriterEntry {
  std::string_view name{}, summary{};
  /// Above 0: the format holds pixels, RGB and interleaved, of that size unless another is asked
  /// for.
  std::int32_t image_size = 0;
  std::uint64_t shards = 0;  ///< above 0: always so many files
  std::unique_ptr<DatasetWriter> (*make)(const WriterPlan&) = nullptr;
};

/// Every format of this program; generated from the component lists.
const Table<DatasetWriterEntry>& dataset_writer_table();

}  // namespace penstock
