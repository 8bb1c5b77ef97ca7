// SPDX-License-Identifier: Apache-2.0
// The host's implementation of a block (see trainer/backends/gpu/kernels/block.h). Phases are loops
// over threads, in order or shuffled. If the result of a phase depends on the order, the phase has
// a race on the device.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <numeric>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/random.h"
#include "trainer/backends/gpu/kernels/block.h"
#include "trainer/backends/gpu/kernels/geometry.h"

namespace penstock::gpu {

/// The numbers 0 to count - 1 in a random order.
inline std::vector<std::int32_t> shuffled(std::int32_t count, Random& random) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t left = order.size(); left > 1; --left) {
    std::swap(order[left - 1], order[random.below(left)]);
  }
  return order;
}

class HostBlock {
 public:
  /// Shared memory that a kernel gets without an explicit request.
  static constexpr std::size_t kSharedBytes = 48 * 1024;

  /// `memory` holds kSharedBytes, aligned to 16. `random` shuffles threads; null: threads run in
  /// order.
  HostBlock(const Geometry& geometry, std::int32_t row_block, std::int32_t column_block,
            std::span<std::byte> memory, Random* random)
      : geometry_(geometry),
        row_block_(row_block),
        column_block_(column_block),
        memory_(memory),
        random_(random) {}

  std::int32_t row_block() const { return row_block_; }
  std::int32_t row_blocks() const { return geometry_.row_blocks; }
  std::int32_t column_block() const { return column_block_; }
  std::int32_t threads() const { return geometry_.threads; }

  template <class Phase>
  void for_each_thread(const Phase& phase) {
    if (random_ == nullptr) {
      for (std::int32_t thread = 0; thread < threads(); ++thread) phase(thread);
    } else {
      for (const std::int32_t thread : shuffled(threads(), *random_)) phase(thread);
    }
  }

  /// Poisoned, because the device's shared memory is not initialised.
  template <class T>
  T& shared() {
    static_assert(std::is_trivially_default_constructible_v<T> && sizeof(T) <= kSharedBytes);
    PENSTOCK_ASSERT(memory_.size() == kSharedBytes);
    std::ranges::fill(memory_.first(sizeof(T)), std::byte{0xff});
    return *std::launder(reinterpret_cast<T*>(memory_.data()));
  }

  template <class T>
  class PerThread {
   public:
    explicit PerThread(const HostBlock& block)
        : values_(static_cast<std::size_t>(block.threads())) {}
    T& operator[](std::int32_t thread) { return values_.at(static_cast<std::size_t>(thread)); }
    const T& operator[](std::int32_t thread) const {
      return values_.at(static_cast<std::size_t>(thread));
    }

   private:
    std::vector<T> values_;
  };

  template <class T>
  T sum(const PerThread<T>& state) const {
    return combine(state, T{0}, [](T a, T b) { return a + b; });
  }
  template <class T>
  T largest(const PerThread<T>& state) const {
    return combine(state, state[0], [](T a, T b) { return larger(a, b); });
  }

 private:
  /// Combines values in the device's order: a tree over each warp, then the warps in order.
  template <class T, class Two>
  T combine(const PerThread<T>& state, T start, const Two& two) const {
    PENSTOCK_ASSERT(threads() % kWarp == 0);
    T all = start;
    for (std::int32_t first = 0; first < threads(); first += kWarp) {
      std::array<T, kWarp> lanes;
      for (std::int32_t lane = 0; lane < kWarp; ++lane) {
        lanes[static_cast<std::size_t>(lane)] = state[first + lane];
      }
      for (std::size_t far = kWarp / 2; far > 0; far /= 2) {
        for (std::size_t lane = 0; lane < far; ++lane) {
          lanes[lane] = two(lanes[lane], lanes[lane + far]);
        }
      }
      all = two(all, lanes[0]);
    }
    return all;
  }

  Geometry geometry_;
  std::int32_t row_block_, column_block_;
  std::span<std::byte> memory_;
  Random* random_;
};

}  // namespace penstock::gpu
