// SPDX-License-Identifier: Apache-2.0
// Checks that every sample of a data set is usable: reads its bytes, compares checksums if the
// format has them, and decodes its whole image.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <stop_token>
#include <string>
#include <vector>

namespace penstock::dataset {

struct CheckDataset {
  std::string directory{};  ///< as --data-dir of a run
  std::string source{};     ///< as queue's option `source`
  std::int32_t threads = 1;
  /// Called by one thread at a time, at most a few times a second. May be empty.
  std::function<void(std::uint64_t done, std::uint64_t total, std::uint64_t bad)> on_progress{};
};

struct CheckedDataset {
  bool stopped = false;                  ///< stopped by request, before the last sample
  std::uint64_t samples = 0, bytes = 0;  ///< checked samples; encoded bytes of the good ones
  std::uint64_t bad = 0;
  std::vector<std::string> reasons;   ///< why samples are bad, for the first kMostReasons by index
  std::string note;                   ///< SourceFacts::note
  std::vector<std::uint64_t> labels;  ///< good samples per label
  double seconds = 0;

  static constexpr std::size_t kMostReasons = 1000;

  /// Bad samples whose format is not decoded. They are counted here, and have no reason of their
  /// own.
  struct OtherFormat {
    std::uint64_t samples = 0;
    std::string example;
  };
  std::map<std::string, OtherFormat> other_formats{};  ///< by format: "a WebP image"
};

/// Throws ConfigError if the data set does not exist.
CheckedDataset check_dataset(const CheckDataset& order, const std::stop_token& stop);

}  // namespace penstock::dataset
