// SPDX-License-Identifier: Apache-2.0
// Packed data sets: many samples in a few large files, each sample at a place that is known before
// the run. A format says where the records of a shard lie and what is in one; the source does the
// rest: shards mapped into memory, indexed in parallel, records handed out in shuffled order as
// views of the page cache, without a copy.
//
//   shard files -> RecordFormat::index (once) -> records -> SampleOrder -> RecordFormat::open
//
// A new format: a class derived from RecordFormat, and a SourceEntry whose make() calls
// make_record_source().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "dataflow/file_list.h"
#include "dataflow/packed/mapped_file.h"
#include "dataflow/source.h"

namespace penstock {

/// A sample's place, as found by indexing.
struct Record {
  std::uint64_t offset = 0;  ///< in its shard, bytes
  std::uint32_t bytes = 0;
  std::int32_t label = -1;  ///< -1: the record is damaged, which open() will say
};

class RecordFormat {
 public:
  virtual ~RecordFormat() = default;

  /// Calls `add` for each record of `shard`, in the order in which they lie; reads as little of
  /// them as it can. A record that is damaged is added as well, with what is known of it; where the
  /// rest of the shard is lost with it, one record stands for the rest. Throws ConfigError, with
  /// the path and the offset, for a file that is not of this format at all. Called for several
  /// shards at a time.
  virtual void index(const MappedFile& shard,
                     const std::function<void(const Record&)>& add) const = 0;

  virtual SampleKind kind() const noexcept { return SampleKind::encoded; }

  /// Sets the image of `sample`, and its layout where that is pixels, whose `lent` is its record:
  /// `lent` becomes a part of it, or `bytes` is filled and `lent` emptied. Checks again whatever it
  /// relies on. Throws DataError, with the sample's file and offset, for a damaged record. Any
  /// number of callers at a time.
  virtual void open(Sample& sample) const = 0;

  /// What a reader of the result should know of the data, in a sentence; empty: nothing. Called
  /// once all shards are indexed.
  virtual std::string note() const { return {}; }
};

/// Throws ConfigError where `shards` hold no record, or labels that the plan has no classes for.
std::unique_ptr<Source> make_record_source(const DataPlan& plan, FileList shards,
                                           std::unique_ptr<RecordFormat> format);

/// The message of a ConfigError: a label that the plan has no class for.
[[noreturn]] void refuse_label(const std::string& path, std::uint64_t offset, std::int32_t label,
                               std::int32_t classes);

/// The message of a DataError: "reading 'a.tar' at byte 512: <problem>; expected ...".
[[noreturn]] void refuse_record(const Sample& sample, std::string_view problem);

}  // namespace penstock
