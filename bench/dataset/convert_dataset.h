// SPDX-License-Identifier: Apache-2.0
// Converts a data set to another format: the same encoded images, byte for byte, or the pixels of
// their centres, with the same labels.
//
//   read all samples and check that they are readable -> write -> read back and compare
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "dataflow/datasets/dataset_writer.h"
#include "dataflow/options.h"

namespace penstock::dataset {

struct ConvertDataset {
  std::string directory{};   ///< as --data-dir of a run
  std::string source{};      ///< as queue's option `source`: "tfrecord:label_base=0"
  std::string out{};         ///< a new or empty folder
  ComponentText options{};   ///< of the format to write
  std::uint64_t shards = 0;  ///< 0: enough that each stays below `shard_bytes`
  std::uint64_t shard_bytes = std::uint64_t{256} << 20;
  std::int32_t image_size = 0;  ///< for formats of pixels; 0: the format's default
  bool shuffle = false;         ///< write in random order, drawn from `seed`, for formats that are
                                ///< read in order
  std::uint64_t seed = 1;
  bool skips_bad = false;    ///< omit unreadable samples; otherwise the first one throws
  std::int32_t threads = 1;  ///< threads for indexing the source
  /// Called on the calling thread, after each sample of a phase. May be empty.
  std::function<void(std::string_view phase, std::uint64_t done, std::uint64_t total)>
      on_progress{};
};

struct ConvertedDataset {
  bool stopped = false;  ///< stopped by request; `out` is removed
  std::uint64_t samples = 0, shards = 0;
  std::vector<std::string> left_out{};  ///< reasons, one for each omitted sample
  /// Of all files; before is 0 if the source does not say which files it reads.
  std::uint64_t bytes_before = 0, bytes_after = 0;
  double write_s = 0;                          ///< reading and writing every sample once
  double read_before_s = 0, read_after_s = 0;  ///< reading each sample once, on one thread
  /// Epochs until faster reading has saved the time for writing; negative: never.
  double payback_epochs() const noexcept;
};

/// Blocks until it is done. Throws ConfigError if something cannot be read or written, DataError
/// for a damaged sample, and Error if the new files differ when read back. `out` is then removed.
ConvertedDataset convert_dataset(const ConvertDataset& order,
                                 const datasets::DatasetWriterEntry& to,
                                 const std::stop_token& stop);

}  // namespace penstock::dataset
