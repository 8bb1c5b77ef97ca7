// SPDX-License-Identifier: Apache-2.0
// Records which samples a feeder put into batches, epoch by epoch, in a file. `penstock dataset
// coverage` reads the files of all processes, and tells whether each sample was seen exactly once.
//
// The file is one JSON object: schema (1), samples (in an epoch of all ranks), rank, ranks, share
// (samples in an epoch of this rank), and epochs: a list of {epoch, twice, seen}. `twice` counts
// what this rank saw again. `seen` has a hexadecimal digit for each 4 samples, the first sample in
// the lowest bit of the first digit.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <vector>

#include "dataflow/machine/output_file.h"
#include "dataflow/source.h"

namespace penstock {

/// One bit for each sample and epoch. Thread-safety: saw() from any thread.
class SampleCoverage {
 public:
  /// Begins the file `path`, of several ranks `path`.RANK. Throws DataError.
  SampleCoverage(const std::filesystem::path& path, const DataPlan& plan, const SourceFacts& facts);

  /// The sample is in a batch.
  void saw(std::uint64_t epoch, std::uint64_t index);
  /// Completes the file. Call once, when no thread calls saw() any more. Throws DataError.
  void write();

 private:
  struct Epoch {
    std::vector<bool> seen;
    std::uint64_t twice = 0;
  };

  OutputFile file_;
  const std::uint64_t samples_, share_;
  const std::int32_t rank_, ranks_;
  std::mutex mutex_;
  std::map<std::uint64_t, Epoch> epochs_;  // under mutex_
};

}  // namespace penstock
