// SPDX-License-Identifier: Apache-2.0
#include "feeders/synthetic_pixels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>
#include <span>

#include "dataflow/error.h"
#include "dataflow/random.h"

namespace penstock {
namespace {

constexpr std::size_t kValues = 256, kQuantiles = std::size_t{1} << 16;
using Weights = std::array<double, kValues>;
/// Of kQuantiles, how many are each value.
using Counts = std::array<std::size_t, kValues>;

Counts counts_of(const Weights& weights) {
  double total = 0, sum = 0;
  for (const double weight : weights) total += weight;
  Counts counts{};
  std::size_t before = 0;
  for (std::size_t value = 0; value < kValues; ++value) {
    sum += weights[value];
    const auto end = static_cast<std::size_t>(std::llround(kQuantiles * sum / total));
    counts[value] = end - before;
    before = end;
  }
  return counts;
}

/// In bits per value.
double entropy_of(const Counts& counts) {
  double entropy = 0;
  for (const std::size_t count : counts) {
    const double share = static_cast<double>(count) / kQuantiles;
    if (count > 0) entropy -= share * std::log2(share);
  }
  return entropy;
}

/// The values of a normal distribution without its tails, rounded to whole numbers.
Counts truncated_normal() {
  constexpr double kMean = 127, kDeviation = 60, kReach = 2 * kDeviation;
  const auto below = [&](double value) {  // in the normal distribution, up to a constant
    const double inside = std::clamp(value, kMean - kReach, kMean + kReach);
    return std::erf((inside - kMean) / (kDeviation * std::numbers::sqrt2));
  };
  Weights weights;
  for (std::size_t value = 0; value < kValues; ++value) {
    const auto middle = static_cast<double>(value);
    weights[value] = below(middle + 0.5) - below(middle - 0.5);
  }
  return counts_of(weights);
}

/// A bell curve around 128 whose width gives it the entropy.
Counts bell_of_entropy(double bits) {
  const auto bell = [](double deviation) {
    Weights weights;
    for (std::size_t value = 0; value < kValues; ++value) {
      const double z = (static_cast<double>(value) - 128) / deviation;
      weights[value] = std::exp(-z * z / 2);
    }
    return counts_of(weights);
  };
  double narrow = 0.01, wide = 1e4;  // 0 and 8 bits
  for (int halving = 0; halving < 60; ++halving) {
    const double middle = std::sqrt(narrow * wide);
    (entropy_of(bell(middle)) < bits ? narrow : wide) = middle;
  }
  return bell(narrow);
}

std::vector<std::uint8_t> quantiles_of(const Counts& counts) {
  std::vector<std::uint8_t> quantiles;
  for (std::size_t value = 0; value < kValues; ++value) {
    quantiles.insert(quantiles.end(), counts[value], static_cast<std::uint8_t>(value));
  }
  return quantiles;
}

void draw(Random& random, std::span<const std::uint8_t> quantiles, std::span<std::byte> to) {
  const auto draw_eight = [&] {
    std::uint64_t eight = 0;
    for (std::size_t i = 0; i < 8; i += 4) {
      const std::uint64_t bits = random.bits();
      for (std::size_t j = 0; j < 4; ++j) {
        eight |= std::uint64_t{quantiles[(bits >> (16 * j)) & 0xFFFF]} << (8 * (i + j));
      }
    }
    return eight;
  };
  for (; to.size() >= 8; to = to.subspan(8)) {
    const std::uint64_t eight = draw_eight();
    std::memcpy(to.data(), &eight, 8);
  }
  const std::uint64_t rest = draw_eight();
  std::memcpy(to.data(), &rest, to.size());
}

}  // namespace

SyntheticPixels::SyntheticPixels(const Options& options) {
  const bool is_normal = options.choice("pixels", {{"uniform"}, {"truncated_normal"}}) == 1;
  const double bits = options.real("entropy_bits");
  if (!(bits >= 0 && bits <= 8)) {
    throw ConfigError("option 'entropy_bits' is '{}'; expected 0 to 8 bits per byte",
                      options.text("entropy_bits"));
  }
  if (is_normal && options.given("entropy_bits")) {
    throw ConfigError(
        "option 'entropy_bits' sets how pixels are drawn, and so does pixels=truncated_normal; "
        "leave one of them out");
  }
  if (is_normal) {
    quantiles_ = quantiles_of(truncated_normal());
  } else if (bits < 8) {
    quantiles_ = quantiles_of(bell_of_entropy(bits));
  }
}

void SyntheticPixels::fill(const Batch& batch, std::int32_t classes, std::uint64_t seed,
                           std::uint64_t stream, std::uint64_t index,
                           const std::stop_token& stop) const {
  constexpr std::size_t kPart = std::size_t{16} << 20;  // bytes between two stop checks
  Random random(seed, stream, index);
  for (std::span<std::byte> left = batch.pixels; !left.empty() && !stop.stop_requested();) {
    const std::size_t part = std::min(left.size(), kPart);
    if (quantiles_.empty()) {
      random.fill(left.first(part));
    } else {
      draw(random, quantiles_, left.first(part));
    }
    left = left.subspan(part);
  }
  for (std::int32_t& label : batch.labels) {
    label = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(classes)));
  }
}

}  // namespace penstock
