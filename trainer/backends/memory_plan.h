// SPDX-License-Identifier: Apache-2.0
// Places the tensors of one step in one block of memory. Tensors with overlapping lifetimes never
// share a byte. Pure arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock {

/// A tensor that is first written in step `first` and last read in step `last`, both inclusive.
struct Lifetime {
  std::size_t bytes = 0;
  std::int32_t first = 0, last = 0;
  std::size_t offset = 0;  ///< set by plan_memory; a multiple of kPlanAlignment
};

/// In bytes: the width of a GPU's memory access, and several cache lines of a CPU.
constexpr std::size_t kPlanAlignment = 256;

/// Sets all offsets and returns the size of the block. Greedy by size (Pisarchyk and Lee,
/// "Efficient memory management for deep neural net inference", 2020): the largest tensor first,
/// each in the smallest gap between tensors that live at the same time. O(n^2).
std::size_t plan_memory(std::span<Lifetime> tensors);

/// The maximum number of bytes that live at one time: a lower bound for every plan.
std::size_t peak_of(std::span<const Lifetime> tensors);

}  // namespace penstock
