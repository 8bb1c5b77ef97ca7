// SPDX-License-Identifier: Apache-2.0
// Merges what several processes say about the samples that they saw (feeders/sample_coverage.h):
// was each sample of an epoch seen exactly once?
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace penstock::dataset {

struct EpochCoverage {
  std::uint64_t epoch = 0;
  std::uint64_t once = 0, more = 0, missing = 0;  ///< samples
  bool is_over = false;  ///< every process has seen its whole share, so nothing more will come
  std::string missing_samples{};  ///< "3, 8-17"; the first ones, if there are many
};

struct Coverage {
  std::uint64_t samples = 0;  ///< in an epoch
  std::int32_t ranks = 1;
  std::vector<std::int32_t> absent;  ///< ranks without a file
  std::vector<EpochCoverage> epochs;

  /// Every rank has a file, no sample was seen twice, and in each epoch that is over none is
  /// missing.
  bool is_exact() const;
};

/// Reads the files of all processes of one run, or of the producers with different shards. Throws
/// ConfigError if there is no such file, DataError for damaged files and for files of different
/// data sets.
Coverage read_coverage(const std::vector<std::filesystem::path>& files);

/// The same from texts and their names in messages.
struct CoverageText {
  std::string name, text;
};
Coverage merge_coverage(const std::vector<CoverageText>& files);

/// A table of the epochs, and a sentence with the answer.
std::string to_text(const Coverage& coverage);

}  // namespace penstock::dataset
