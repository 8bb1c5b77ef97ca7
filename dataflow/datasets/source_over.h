// SPDX-License-Identifier: Apache-2.0
// Sources that stand over another one, the inner source: they read its files in another way, read
// its samples before they are needed, or repeat one of them. Thread-safety: as Source's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "dataflow/machine/file_reader.h"
#include "dataflow/source.h"

namespace penstock::datasets {

/// Reads the bytes of `inner`, a source of files or of records in mapped files, with `reader`
/// instead. The inner source chooses samples and parses records; it touches no page of the samples.
/// With `whole_files` a sample is a whole file. Otherwise it is a part of a file that next() has
/// lent; `inner` handles other samples, except samples of compressed shards, for which load()
/// throws ConfigError.
std::unique_ptr<Source> read_by(std::unique_ptr<Source> inner, std::unique_ptr<FileReader> reader,
                                bool whole_files);

struct ReadAheadPlan {
  std::size_t samples = 64;  ///< limit on samples read ahead; above 0
  std::uint64_t bytes = std::uint64_t{64} << 20;
  std::int32_t readers = 8;  ///< threads, above 0
};

/// Reads samples before they are needed, so that slow storage always has many requests in flight:
///
///   inner source -> (readers, each with one sample at a time) -> a ring of samples -> next()
///
/// Samples keep their order. next() blocks until the sample is read: its bytes are in it, or are
/// lent and in memory. Read-ahead is bounded in samples and in bytes; the bytes may exceed their
/// limit by one sample per reader. The readers are threads of the source.
std::unique_ptr<Source> read_ahead(std::unique_ptr<Source> inner, const ReadAheadPlan& plan);

/// One epoch of the whole set in its order, the same for every rank.
DataPlan plan_of_whole_set(const DataPlan& plan);

/// Replaces the set by its first sample, which is read once, held in memory, and given for every
/// request. Only decoding is left as work. Positions advance as in the full set, so that everything
/// that depends on an image's position (crops, flips, the end of an epoch) varies as usual. `set`
/// must be opened with plan_of_whole_set(plan), and is not needed afterwards. Throws ConfigError
/// if that sample cannot be read.
std::unique_ptr<Source> repeat_first_sample(Source& set, const DataPlan& plan);

}  // namespace penstock::datasets
