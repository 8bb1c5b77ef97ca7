// SPDX-License-Identifier: Apache-2.0
// Places the tensors of one step in one block of memory. Tensors with overlapping lifetimes never
// share a byte. If the block is too large, finds the batch that fits. Pure arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "dataflow/error.h"

namespace penstock::compiler {

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

/// The size of a plan for a batch of that many images.
struct PlannedBatch {
  std::int32_t images = 0;
  std::size_t bytes = 0;
};
/// A batch of fewer than `limit` images whose plan takes at most `most_bytes`; 0 if there is none.
/// Plans do not grow linearly with the batch, because libraries' workspaces do not. So a guess
/// follows from one plan, which is of any batch, and its own plan corrects it if it is too large.
std::int32_t find_batch_that_fits(
    PlannedBatch known, std::int32_t limit, std::size_t most_bytes,
    const std::function<std::size_t(std::int32_t images)>& planned_bytes);

/// Refuses a batch for which `need` ("training needs 3.2 GB") exceeds the budget.
ConfigError batch_too_large(std::int32_t images, const std::string& need, std::size_t budget,
                            std::int32_t fitting);

}  // namespace penstock::compiler
