// SPDX-License-Identifier: Apache-2.0
// One data set in another format: the same encoded images, byte for byte, or the pixels of their
// centres, with the same labels.
//
//   read all (what is there, and whether it can be read) -> write -> read back and compare
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "bench/dataset/dataset_writer.h"

namespace penstock {

struct ConvertDataset {
  std::string directory{};   ///< what --data-dir of a run would be
  std::string source{};      ///< as queue's option `source`: "tfrecord:label_base=0"
  std::string out{};         ///< a folder that is not there, or empty
  std::uint64_t shards = 0;  ///< 0: as many as keep each below `shard_bytes`
  std::uint64_t shard_bytes = std::uint64_t{256} << 20;
  std::int32_t image_size = 0;  ///< of formats that hold pixels; 0: the format's own
  bool shuffle = false;         ///< write in an order drawn from `seed`, for formats read in order
  std::uint64_t seed = 1;
  bool skips_bad = false;    ///< leave samples out that cannot be read; else the first one throws
  std::int32_t threads = 1;  ///< that may index the source
  /// Called by the calling thread, after each sample of a phase. May be empty.
  std::function<void(std::string_view phase, std::uint64_t done, std::uint64_t total)>
      on_progress{};
};

struct ConvertedDataset {
  bool stopped = false;  ///< by request; nothing is left of `out`
  std::uint64_t samples = 0, shards = 0;
  std::vector<std::string> left_out{};              ///< why, for each sample that was
  std::uint64_t bytes_before = 0, bytes_after = 0;  ///< of all files
  double write_s = 0;                               ///< reading and writing every sample once
  double read_before_s = 0, read_after_s = 0;       ///< reading each sample once, on one thread
  /// Epochs after which reading the new files has saved what writing took; negative: never.
  double payback_epochs() const noexcept;
};

/// Blocks until it is done. Throws ConfigError for what cannot be read or written, DataError for a
/// damaged sample, and Error where what was written reads back otherwise; then nothing is left of
/// `out`.
ConvertedDataset convert_dataset(const ConvertDataset& order, const DatasetWriterEntry& to,
                                 const std::stop_token& stop);

}  // namespace penstock
