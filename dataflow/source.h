// SPDX-License-Identifier: Apache-2.0
// Where samples come from: a folder, a packed file, memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "dataflow/batch_ring.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/file_list.h"
#include "dataflow/options.h"
#include "dataflow/sample.h"

namespace penstock {

/// Which samples, and in which order. Rank r of R sees a disjoint share of every epoch.
struct DataPlan {
  std::string directory;
  std::int32_t rank = 0, ranks = 1;
  std::int64_t epochs = -1;  ///< -1: for ever
  Order order = Order::relaxed;
  bool shuffle = true;
  bool augment = true;  ///< false: pixels as in evaluation, which leave nothing to chance
  std::uint64_t seed = 1;
  std::uint64_t first_sample = 0;  ///< of this rank's share, counted over all epochs
  std::int32_t classes = 1000;     ///< labels beyond are refused before anything starts
  // Of use to a source that decodes before the run.
  ImageShape image{};        ///< of the rows that samples will fill
  std::int32_t threads = 1;  ///< that it may run while it is made
  std::stop_token stop{};    ///< ends the work that a source does while it is made

  /// Throws Error if a stop is requested.
  void expect_no_stop() const {
    if (stop.stop_requested()) throw Error("stopped while '" + directory + "' was being read");
  }
};

/// What the content of a source's samples is.
enum class SampleKind : std::uint8_t {
  encoded,  ///< a JPEG image
  pixels,   ///< laid out as Sample::layout says
};

class Source {
 public:
  virtual ~Source() = default;
  /// Sources whose samples others send wait in await() alone, until next() has something to say or
  /// a stop is requested; where one is_ready() it returns at once. Whoever calls next() calls both
  /// before, and no source stands in front of one of these.
  virtual bool is_ready() { return true; }
  virtual void await(const std::stop_token&) {}
  /// Chooses the next sample, and fills in what load() does not; false: end of data. One caller at
  /// a time. Throws DataError for a sample that cannot be read, with its file; `sample` then has
  /// its index and epoch, and the next call goes on behind it.
  virtual bool next(Sample& sample) = 0;
  /// Reads the image of a sample that next() chose, where next() has not. Any number of callers at
  /// a time, beside one of next(). Throws DataError as next() does.
  virtual void load(Sample&) const {}
  /// Samples in one epoch of this rank's share.
  virtual std::uint64_t size() const noexcept = 0;
  /// Samples in one epoch of all ranks together. Sources that share nothing out keep this.
  virtual std::uint64_t size_over_ranks() const noexcept { return size(); }
  /// The same for all samples.
  virtual SampleKind kind() const noexcept { return SampleKind::encoded; }
  /// Labels lie in [0, classes).
  virtual std::int32_t classes() const noexcept = 0;
  /// The files that samples are read from while next() is called; null: none are. Of all ranks.
  virtual const FileList* files() const noexcept { return nullptr; }
  /// What a reader of the result should know of the data, in a sentence; empty: nothing.
  virtual std::string note() const { return {}; }
};

struct SourceEntry {
  std::string_view name{}, summary{};
  std::span<const OptionSpec> options{};
  /// Throws ConfigError when there is no such data, with the path; Error where the plan's stop is
  /// requested before all that it reads first has been read.
  std::unique_ptr<Source> (*make)(const DataPlan&, const Options&) = nullptr;
};

/// Every source of this program; generated from the component lists.
const Table<SourceEntry>& source_table();

}  // namespace penstock
