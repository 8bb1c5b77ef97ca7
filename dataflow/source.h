// SPDX-License-Identifier: Apache-2.0
// A source gives samples: from a folder, a packed file or memory.
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

/// Which samples to read, and in which order. Rank r of R sees a disjoint share of every epoch.
struct DataPlan {
  std::string directory;
  std::int32_t rank = 0, ranks = 1;
  std::int32_t local_rank = 0, local_ranks = 1;  ///< of them, on this machine
  std::int64_t epochs = -1;                      ///< -1: endless
  Order order = Order::relaxed;
  bool shuffle = true;
  bool augment = true;  ///< false: pixels as in evaluation, without random choices
  std::uint64_t seed = 1;
  std::uint64_t first_sample = 0;  ///< where to start in this rank's share, counted over all epochs
  std::int32_t classes = 1000;     ///< a larger label is refused before the run
  // For sources that decode before the run:
  ImageShape image{};        ///< shape of the rows that samples will fill
  std::int32_t threads = 1;  ///< threads that the source may run while it is made
  std::stop_token stop{};    ///< stops the work that a source does while it is made

  /// Throws Error if a stop is requested.
  void expect_no_stop() const {
    if (stop.stop_requested()) throw Error("stopped while '{}' was being read", directory);
  }
};

/// The content of a source's samples.
enum class SampleKind : std::uint8_t {
  encoded,  ///< a JPEG or PNG image
  pixels,   ///< pixels; Sample::layout describes them
};

/// What a source says about its data. Only the note may change as samples are read.
struct SourceFacts {
  std::uint64_t size = 0;                 ///< samples in one epoch of this rank's share
  std::uint64_t size_over_ranks = 0;      ///< samples in one epoch of all ranks together
  SampleKind kind = SampleKind::encoded;  ///< of all samples
  std::int32_t classes = 0;               ///< labels are in [0, classes)
  /// The files, of all ranks, from which next() reads samples; null if it reads none. They live as
  /// long as the source.
  const FileList* files = nullptr;
  std::string note{};  ///< a sentence for the reader of the result; may be empty
};

class Source {
 public:
  virtual ~Source() = default;
  /// For sources whose samples other processes send. Such a source blocks in await() alone, until
  /// next() has a result or a stop is requested; await() returns at once if is_ready() is true. The
  /// caller of next() calls both before it. No source wraps such a source.
  virtual bool is_ready() { return true; }
  virtual void await(const std::stop_token&) {}
  /// Chooses the next sample, and fills in what load() does not. False: end of data. One caller at
  /// a time. Throws DataError that names the file if a sample cannot be read; `sample` then has its
  /// index and epoch, and the next call continues after it.
  virtual bool next(Sample& sample) = 0;
  /// Reads the image of a sample that next() chose, if next() did not. Any number of threads may
  /// call it at a time, also during next(). Throws DataError as next() does.
  virtual void load(Sample&) const {}
  /// Not for hot paths: it may allocate.
  virtual SourceFacts facts() const = 0;
};

struct SourceEntry {
  std::string_view name{}, summary{};
  std::span<const OptionSpec> options{};
  bool in_memory = false;  ///< holds the samples of another source in memory
  /// Reads directory/<class>/<image>: each sample is a whole file.
  bool class_folders = false;
  std::string_view dataset = "imagenet";  ///< its data set's name in tf_cnn_benchmarks
  /// Throws ConfigError with the path if there is no such data. Throws Error if the plan's stop is
  /// requested before the initial reading ends.
  std::unique_ptr<Source> (*make)(const DataPlan&, const Options&) = nullptr;
  /// True for the name of a file that shows this format. A folder's name ends with a slash.
  bool (*detects)(std::string_view name) = nullptr;
};

/// Every source of this program. The build generates the table from the component lists.
const Table<SourceEntry>& source_table();

}  // namespace penstock
