// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers. They are a pure function of (seed, epoch, sample index, numbers
// drawn so far), never of the thread that draws them. The mixing function is SplitMix64 (Steele,
// Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "dataflow/device_code.h"

namespace penstock {

/// SplitMix64's output function: a bijection of 64-bit words.
PENSTOCK_HOST_DEVICE constexpr std::uint64_t mix64(std::uint64_t z) noexcept {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

class Random {
 public:
  PENSTOCK_HOST_DEVICE explicit constexpr Random(std::uint64_t seed, std::uint64_t epoch = 0,
                                                 std::uint64_t index = 0) noexcept
      : state_(mix64(mix64(mix64(seed + kStep) + epoch + kStep) + index + kStep)) {}

  PENSTOCK_HOST_DEVICE constexpr std::uint64_t bits() noexcept { return mix64(state_ += kStep); }

  /// Uniform in [0, 1), with 53 random bits.
  constexpr double uniform() noexcept { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  constexpr double uniform(double low, double high) noexcept {
    return low + (high - low) * uniform();
  }

  /// Uniform in [0, bound); 0 < bound <= 2^32. Biased by less than bound / 2^32.
  constexpr std::uint64_t below(std::uint64_t bound) noexcept {
    return ((bits() >> 32) * bound) >> 32;
  }

  /// Fills `bytes` with uniform bytes, eight from each draw.
  void fill(std::span<std::byte> bytes) noexcept {
    std::size_t done = 0;
    for (; done + 8 <= bytes.size(); done += 8) {
      const std::uint64_t word = bits();
      std::memcpy(bytes.data() + done, &word, 8);
    }
    if (done < bytes.size()) {
      const std::uint64_t word = bits();
      std::memcpy(bytes.data() + done, &word, bytes.size() - done);
    }
  }

 private:
  static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15U;
  std::uint64_t state_;
};

}  // namespace penstock
