// SPDX-License-Identifier: Apache-2.0
// Kernels for layer-wise rules: sums of squares by chunks, and from them one ratio per tensor,
// which its chunks share.
#pragma once

#include <cmath>

#include "trainer/backends/gpu/kernel_calls.h"
#include "trainer/backends/gpu/kernels/arena.h"
#include "trainer/backends/gpu/kernels/columns.h"
#include "trainer/backends/gpu/kernels/select.h"
#include "trainer/optimizers/trust_ratio.h"

namespace penstock::gpu {

struct SumSquaresBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = 3;

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const SumSquares& call) {
    if (block.row_block() >= call.chunk_count) return;
    const ArenaChunk chunk = call.chunks[block.row_block()];
    typename Block::template PerThread<float> of_weights(block), of_gradients(block);
    block.for_each_thread([&](std::int32_t thread) {
      const Sums sums = share(call, chunk, thread, block.threads());
      of_weights[thread] = sums.weights;
      of_gradients[thread] = sums.gradients;
    });
    const float weights = block.sum(of_weights), gradients = block.sum(of_gradients);
    block.for_each_thread([&](std::int32_t thread) {
      if (thread != 0) return;
      call.squares[2 * block.row_block()] = weights;
      call.squares[2 * block.row_block() + 1] = gradients;
    });
  }

 private:
  struct Sums {
    float weights, gradients;
  };
  template <int Width>
  struct Item {
    Packed<float, Width> weight, gradient;
  };
  template <int Width>
  static PENSTOCK_DEVICE Item<Width> get(const SumSquares& call, std::size_t at) {
    return {load<Width>(call.weights + at), load<Width>(call.gradients + at)};
  }
  template <int Width>
  static PENSTOCK_DEVICE void add(const Item<Width>& item, float scale, float limit, Sums& sums) {
    const Lanes<Width> weight = unpack<float, Width>(item.weight);
    const Lanes<Width> gradient = unpack<float, Width>(item.gradient);
    PENSTOCK_UNROLL
    for (int k = 0; k < Width; ++k) {
      const float clipped = smaller(larger(scale * gradient.of[k], -limit), limit);
      sums.weights += weight.of[k] * weight.of[k];
      sums.gradients += clipped * clipped;
    }
  }
  /// One thread's part.
  static PENSTOCK_DEVICE Sums share(const SumSquares& call, const ArenaChunk& chunk,
                                    std::int32_t thread, std::int32_t threads) {
    const float clip = call.scalars->hyper.gradient_clip, scale = call.gradient_scale;
    const float limit = clip > 0 ? clip : float_of_bits(0x7f800000U);
    const bool aligned =
        in_fours(call.weights + chunk.first) && in_fours(call.gradients + chunk.first);
    Sums sums = {};
    const auto place = [&](std::int64_t i) { return chunk.first + static_cast<std::size_t>(i); };
    for_each_four(
        aligned, chunk.count, thread, threads,
        [&](const Column& column) {
          walk<4>(
              column,
              [&](std::int64_t i) { return get<kArenaWidth>(call, place(i * kArenaWidth)); },
              [&](std::int64_t, const Item<kArenaWidth>& item) { add(item, scale, limit, sums); });
        },
        [&](std::int64_t i) { add(get<1>(call, place(i)), scale, limit, sums); });
    return sums;
  }
};
template <class Launch>
void select(const SumSquares& call, const Launch& launch) {
  launch(Selected<SumSquaresBody>{}, chunk_geometry(call.chunk_count), call);
}

/// One block per tensor.
struct FindTrustBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = 1;

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const FindTrust& call) {
    if (block.row_block() >= call.tensor_count) return;
    const ArenaTensor tensor = call.tensors[block.row_block()];
    typename Block::template PerThread<double> weights(block), gradients(block);
    block.for_each_thread([&](std::int32_t thread) {
      weights[thread] = gradients[thread] = 0;
      if (!tensor.scaled) return;
      for (std::int32_t i = thread; i < tensor.chunk_count; i += block.threads()) {
        const float* const squares = call.squares + 2 * (tensor.first_chunk + i);
        weights[thread] += double{squares[0]};
        gradients[thread] += double{squares[1]};
      }
    });
    const double weight = sqrt(block.sum(weights)), gradient = sqrt(block.sum(gradients));
    block.for_each_thread([&](std::int32_t thread) {
      const double decay = tensor.decays ? double{call.scalars->hyper.weight_decay} : 0.;
      const float ratio = trust_ratio(call.eta, call.epsilon, decay, weight, gradient);
      for (std::int32_t i = thread; i < tensor.chunk_count; i += block.threads()) {
        call.trust[tensor.first_chunk + i] = ratio;
      }
    });
  }
};
template <class Launch>
void select(const FindTrust& call, const Launch& launch) {
  launch(Selected<FindTrustBody>{}, Geometry{larger(1, call.tensor_count), 1, kBlockThreads}, call);
}

}  // namespace penstock::gpu
