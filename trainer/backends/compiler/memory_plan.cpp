// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/compiler/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "dataflow/options.h"

namespace penstock::compiler {
namespace {

std::size_t aligned(std::size_t bytes) {
  return (bytes + kPlanAlignment - 1) / kPlanAlignment * kPlanAlignment;
}

bool overlap(const Lifetime& a, const Lifetime& b) {
  return a.first <= b.last && b.first <= a.last;
}

/// The start of the smallest gap that holds `tensor`, between `placed`, which are sorted by offset.
std::size_t best_offset(const Lifetime& tensor, std::span<const Lifetime* const> placed) {
  std::size_t best = 0, best_gap = std::numeric_limits<std::size_t>::max(), end = 0;
  bool found = false;
  for (const Lifetime* other : placed) {
    if (!overlap(*other, tensor)) continue;
    if (other->offset >= end + aligned(tensor.bytes) && other->offset - end < best_gap) {
      best_gap = other->offset - end;
      best = end;
      found = true;
    }
    end = std::max(end, other->offset + aligned(other->bytes));
  }
  return found ? best : end;
}

}  // namespace

std::size_t plan_memory(std::span<Lifetime> tensors) {
  std::vector<Lifetime*> order;
  for (Lifetime& tensor : tensors) order.push_back(&tensor);
  std::ranges::stable_sort(order, std::ranges::greater(), &Lifetime::bytes);
  std::vector<const Lifetime*> placed;  // by offset
  std::size_t size = 0;
  for (Lifetime* tensor : order) {
    tensor->offset = best_offset(*tensor, placed);
    size = std::max(size, tensor->offset + aligned(tensor->bytes));
    placed.insert(std::ranges::upper_bound(placed, tensor->offset, {}, &Lifetime::offset), tensor);
  }
  return size;
}

std::size_t peak_of(std::span<const Lifetime> tensors) {
  std::size_t peak = 0;
  for (const Lifetime& moment : tensors) {  // the peak is at the start of a tensor
    std::size_t live = 0;
    for (const Lifetime& tensor : tensors) {
      const bool lives = tensor.first <= moment.first && moment.first <= tensor.last;
      live += lives ? aligned(tensor.bytes) : 0;
    }
    peak = std::max(peak, live);
  }
  return peak;
}

std::int32_t find_batch_that_fits(PlannedBatch known, std::int32_t limit, std::size_t most_bytes,
                                  const std::function<std::size_t(std::int32_t)>& planned_bytes) {
  constexpr int kGuesses = 6;
  for (int guess = 0; guess < kGuesses; ++guess) {
    const double fitting = std::floor(static_cast<double>(most_bytes) * known.images /
                                      static_cast<double>(known.bytes));
    known.images = static_cast<std::int32_t>(std::min(fitting, static_cast<double>(limit - 1)));
    if (known.images < 1) return 0;
    known.bytes = planned_bytes(known.images);
    if (known.bytes <= most_bytes) return known.images;
    limit = known.images;
  }
  return 0;
}

ConfigError batch_too_large(std::int32_t images, const std::string& need, std::size_t budget,
                            std::int32_t fitting) {
  return ConfigError("--batch-size is {}: {}, and {} may be used; {}", images, need,
                     size_text(static_cast<double>(budget)),
                     fitting > 0 ? fmt::format("a batch of {} fits", fitting)
                                 : "not even one image fits: use a smaller model");
}

}  // namespace penstock::compiler
