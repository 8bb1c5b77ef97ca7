// SPDX-License-Identifier: Apache-2.0
// Random pixels and labels. Random, because zeros compress, deduplicate and draw less power than
// images.
#pragma once

#include <cstdint>
#include <stop_token>
#include <vector>

#include "dataflow/batch.h"
#include "dataflow/options.h"

namespace penstock {

// The options of feeders that draw pixels.
inline constexpr OptionSpec kDistributionOption{
    "pixels", "uniform",
    "how pixels are drawn: uniform, or truncated_normal as tf_cnn_benchmarks draws them (mean 127, "
    "deviation 60, none beyond 2 deviations)"};
inline constexpr OptionSpec kEntropyOption{
    "entropy_bits", "8",
    "entropy of the pixels in bits per byte, 0 to 8; 8 is uniform, less follows a bell curve"};

/// Draws pixels as the options say; each byte is independent of the others. Any thread may use it.
class SyntheticPixels {
 public:
  /// Uniform pixels.
  SyntheticPixels() = default;
  /// `options` contains the two above. Throws ConfigError.
  explicit SyntheticPixels(const Options& options);

  /// Fills a u8 batch with pixels and labels, as a function of (seed, stream, index). After a stop
  /// request the rest of the batch stays unchanged.
  void fill(const Batch& batch, std::int32_t classes, std::uint64_t seed, std::uint64_t stream,
            std::uint64_t index, const std::stop_token& stop = {}) const;

 private:
  std::vector<std::uint8_t> quantiles_;  // pixels by 16 random bits; empty: uniform
};

}  // namespace penstock
