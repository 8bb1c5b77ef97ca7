// SPDX-License-Identifier: Apache-2.0
// Reads packed data sets: many samples in a few large files, with each sample's position known
// before the run. A format finds the records of a shard and parses them. The source does the rest:
// it maps shards into memory, indexes them in parallel, and hands out records in shuffled order as
// views of the page cache, without a copy.
//
//   shard files -> RecordFormat::index (once) -> records -> SampleOrder -> RecordFormat::open
//
// To add a format, derive a class from RecordFormat, and add a SourceEntry whose make() calls
// make_record_source().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "dataflow/datasets/mapped_file.h"
#include "dataflow/file_list.h"
#include "dataflow/source.h"

namespace penstock::datasets {

/// The position of a sample, as found by indexing.
struct Record {
  std::uint64_t offset = 0;  ///< in its shard, in bytes
  std::uint32_t bytes = 0;
  std::int32_t label = -1;  ///< -1: the record is damaged; open() says why
};

using AddRecord = std::function<void(const Record&)>;

class RecordFormat {
 public:
  virtual ~RecordFormat() = default;

  /// The bytes of a shard, of which records are parts. Called once for each shard before index(),
  /// one call at a time. Throws ConfigError, or DataError if only this shard is damaged.
  virtual MappedFile map(const std::string& path) { return MappedFile(path); }

  /// Calls `add` for each record of `shard`, in file order, and reads as little of the records as
  /// possible. Adds damaged records too, with what is known of them. If damage hides the rest of
  /// the shard, one record stands for the rest. Throws ConfigError with the path and offset if the
  /// file is not of this format at all. May run on several shards at a time.
  virtual void index(const MappedFile& shard, const AddRecord& add) const = 0;

  virtual SampleKind kind() const noexcept { return SampleKind::encoded; }

  /// Extracts the image from a record. At the call, `sample.lent` is the record; afterwards it is a
  /// part of it, or `bytes` is filled and `lent` empty. If the image is pixels, it also sets the
  /// layout. Checks again everything that it relies on. Throws DataError with the sample's file and
  /// offset for a damaged record. Any number of threads may call it at a time.
  virtual void open(Sample& sample) const = 0;

  /// A sentence about the data for the reader of the result; may be empty. Called once all shards
  /// are indexed.
  virtual std::string note() const { return {}; }
};

/// A shard that map() refuses counts as one damaged record. Throws ConfigError if `shards` hold no
/// record, or labels outside the plan's classes.
std::unique_ptr<Source> make_record_source(const DataPlan& plan, FileList shards,
                                           std::unique_ptr<RecordFormat> format);

/// Calls work(0) to work(shards - 1) on up to `threads` threads. If several calls throw, rethrows
/// the error of the lowest shard, so that the message is the same in each run.
void for_each_shard(std::size_t shards, std::int32_t threads,
                    const std::function<void(std::size_t)>& work);

/// Makes `image` the sample's content: lent if it is a part of `record`, else a copy.
void give_image(Sample& sample, std::span<const std::byte> image,
                std::span<const std::byte> record);

/// Throws ConfigError: the plan has no class for a label.
[[noreturn]] void refuse_label(const std::string& path, std::uint64_t offset, std::int32_t label,
                               std::int32_t classes);

/// Throws DataError: "reading 'a.tar' at byte 512: <problem>; expected ...".
[[noreturn]] void refuse_record(const Sample& sample, std::string_view problem);

}  // namespace penstock::datasets
