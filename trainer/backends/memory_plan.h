// SPDX-License-Identifier: Apache-2.0
// Where tensors of one step lie in one block of memory: two whose lifetimes overlap never share a
// byte. Pure arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock {

/// A tensor that is written first in step `first` and read last in step `last`, both included.
struct Lifetime {
  std::size_t bytes = 0;
  std::int32_t first = 0, last = 0;
  std::size_t offset = 0;  ///< set by plan_memory; a multiple of kPlanAlignment
};

/// In bytes: what a GPU reads at once, and several cache lines of a CPU.
constexpr std::size_t kPlanAlignment = 256;

/// Sets all offsets and returns the size of the block. Greedy by size (Pisarchyk and Lee,
/// "Efficient memory management for deep neural net inference", 2020): the largest first, each in
/// the smallest gap that its contemporaries leave. O(n^2).
std::size_t plan_memory(std::span<Lifetime> tensors);

/// The most bytes that live at one time: no plan needs less.
std::size_t peak_of(std::span<const Lifetime> tensors);

}  // namespace penstock
