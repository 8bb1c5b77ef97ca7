// SPDX-License-Identifier: Apache-2.0
// Packed data sets whose shards are compressed, and can only be read from their beginnings: counted
// once when they are opened, then read anew in each epoch by a few threads of the source.
//
//   shards -> one thread for every `readers`th of them -> bounded queues -> shuffle buffer ->
//   next()
//
// The order is a function of the seed, the epoch and the options, not of time: shards shuffled,
// `readers` of them taken from by turns, and from a buffer by chance. Without shuffling it is that
// of the shards. Memory: the queues hold `read_ahead` bytes and a sample for each reader, the
// buffer `shuffle_buffer` samples, whose greatest size is known before the run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dataflow/file_list.h"
#include "dataflow/packed/byte_stream.h"
#include "dataflow/source.h"

namespace penstock {

struct StreamedSample {
  std::vector<std::byte> image;  ///< empty where it was not asked for
  std::uint64_t image_bytes = 0;
  std::uint64_t offset = 0;  ///< in the decompressed shard
  std::int32_t label = -1;
  std::string problem;   ///< empty: it is whole
  bool is_last = false;  ///< with `problem`: the rest of the shard is lost with it
};

class SampleStream {
 public:
  virtual ~SampleStream() = default;
  /// The next sample of the shard, whole or damaged; its image if it is wanted. False: there are no
  /// more. Throws ConfigError, with the path, for a shard that is not of this format at all or that
  /// the options do not fit.
  virtual bool next(StreamedSample& sample, bool wants_image) = 0;
};

class StreamFormat {
 public:
  virtual ~StreamFormat() = default;
  /// The decompressor for a shard that begins so; empty: it is not compressed.
  virtual std::string_view compression(std::span<const std::byte> front) const noexcept = 0;
  /// The samples of the shard at `path`; `bytes` and `path` live longer. Samples larger than
  /// `max_record` bytes are refused before anything is allocated. Any number of callers at a time.
  virtual std::unique_ptr<SampleStream> open(ByteStream& bytes, const std::string& path,
                                             std::uint64_t max_record) const = 0;
};

/// For the tables of the sources that make one.
inline constexpr OptionSpec kStreamOptions[] = {
    {"shuffle_buffer", "1000", "samples in the shuffle buffer of compressed shards"},
    {"readers", "4", "compressed shards that are read at once"},
    {"read_ahead", "64MiB", "bytes to decompress ahead, at most, in compressed shards"},
    {"max_record", "256MiB", "largest record in compressed shards; larger ones are refused"},
};

/// Whether some of the shards are. Throws ConfigError for one that cannot be read.
bool any_is_compressed(const FileList& shards, const StreamFormat& format);

/// `options` has kStreamOptions. Shards may be compressed or not. Throws ConfigError as
/// make_record_source() does, and where the shuffle buffer may take more than half of the memory
/// that is available.
std::unique_ptr<Source> make_stream_source(const DataPlan& plan, FileList shards,
                                           std::unique_ptr<StreamFormat> format,
                                           const Options& options);

}  // namespace penstock
