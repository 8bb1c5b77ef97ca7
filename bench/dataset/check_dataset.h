// SPDX-License-Identifier: Apache-2.0
// Whether every sample of a data set can be used: its bytes are read, checksums are compared where
// the format has them, and its whole image is decoded.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

namespace penstock {

struct CheckDataset {
  std::string directory{};  ///< what --data-dir of a run would be
  std::string source{};     ///< as queue's option `source`
  std::int32_t threads = 1;
  /// Called by one of the threads at a time, a few times a second at most. May be empty.
  std::function<void(std::uint64_t done, std::uint64_t total, std::uint64_t bad)> on_progress{};
};

struct CheckedDataset {
  bool stopped = false;                  ///< by request, before the last sample
  std::uint64_t samples = 0, bytes = 0;  ///< that were checked; encoded bytes of the good ones
  std::uint64_t bad = 0;
  std::vector<std::string> reasons;   ///< of the first kMostReasons bad samples by index
  std::vector<std::uint64_t> labels;  ///< good samples of each label
  double seconds = 0;

  static constexpr std::size_t kMostReasons = 1000;
};

/// Throws ConfigError where there is no such data set.
CheckedDataset check_dataset(const CheckDataset& order, const std::stop_token& stop);

}  // namespace penstock
