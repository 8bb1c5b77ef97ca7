// SPDX-License-Identifier: Apache-2.0
// Reads packed data sets whose shards are compressed and can only be read from their beginnings.
// The source counts the samples once when it opens them. Then a few threads of the source read the
// shards again in each epoch.
//
//   shards -> one thread for every `readers`th of them -> bounded queues -> shuffle buffer ->
//   next()
//
// The order is a function of the seed, the epoch and the options, not of time: shards are shuffled,
// `readers` of them are read in turn, and samples leave the buffer at random. Without shuffling it
// is the order of the shards. Memory: the queues hold `read_ahead` bytes and one sample for each
// reader. The buffer holds `shuffle_buffer` samples; its largest size is known before the run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dataflow/datasets/record_source.h"
#include "dataflow/datasets/shard_stream.h"
#include "dataflow/file_list.h"
#include "dataflow/source.h"

namespace penstock::datasets {

struct StreamedSample {
  std::vector<std::byte> image;  ///< empty if it was not requested
  std::uint64_t image_bytes = 0;
  std::uint64_t offset = 0;  ///< in the decompressed shard
  std::int32_t label = -1;
  std::vector<ObjectBox> boxes;
  std::string problem;  ///< empty: the sample is whole
};

class SampleStream {
 public:
  virtual ~SampleStream() = default;
  /// Gives the next sample of the shard, whole or damaged, with its image if `wants_image` is true.
  /// False: there are no more. Throws ConfigError with the path if the shard is not of this format
  /// at all, or if the options do not match it.
  virtual bool next(StreamedSample& sample, bool wants_image) = 0;
};

class StreamFormat {
 public:
  virtual ~StreamFormat() = default;
  /// The decompressor for a shard that begins with `front`; empty: it is not compressed.
  virtual std::string_view compression(std::span<const std::byte> front) const noexcept = 0;
  /// Opens the samples of the shard at `path`; `bytes` and `path` must outlive the result. Samples
  /// larger than `max_record` bytes are refused before anything is allocated. Any number of threads
  /// may call it at a time.
  virtual std::unique_ptr<SampleStream> open(ByteStream& bytes, const std::string& path,
                                             std::uint64_t max_record) const = 0;
};

/// For the option tables of sources that make a stream source.
inline constexpr OptionSpec kStreamOptions[] = {
    {"shuffle_buffer", "1000", "samples in the shuffle buffer of compressed shards"},
    {"readers", "4", "compressed shards that are read at once"},
    {"read_ahead", "64MiB", "bytes to decompress ahead, at most, in compressed shards"},
    {"max_record", "256MiB", "largest record in compressed shards; larger ones are refused"},
};

/// The source of shards that may be compressed: if none is, make_record_source() with `records`.
/// `options` has kStreamOptions. Throws ConfigError as make_record_source() does, if a shard cannot
/// be read, and if the shuffle buffer may take more than half of the available memory.
std::unique_ptr<Source> make_shard_source(const DataPlan& plan, FileList shards,
                                          std::unique_ptr<StreamFormat> streams,
                                          std::unique_ptr<RecordFormat> records,
                                          const Options& options);

}  // namespace penstock::datasets
