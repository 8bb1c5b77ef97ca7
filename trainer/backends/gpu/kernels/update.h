// SPDX-License-Identifier: Apache-2.0
// One update of all weights, by the rules that trainer/optimizers defines and in their order of
// operations. One block per chunk; for layer-wise rules, first the sums of squares by chunks.
#pragma once

#include <cmath>

#include "trainer/backends/gpu/kernel_calls.h"
#include "trainer/backends/gpu/kernels/arena.h"
#include "trainer/backends/gpu/kernels/columns.h"
#include "trainer/backends/gpu/kernels/select.h"
#include "trainer/backends/gpu/kernels/step.h"
#include "trainer/optimizers/trust_ratio.h"

namespace penstock::gpu {

/// Values that all elements of a chunk share.
struct UpdateFactors {
  float rate;  ///< adam: includes both corrections; lars: includes the tensor's trust
  float decay, limit, gradient_scale;
  float keep[2], take[2];
  float epsilon, start;  ///< start, rmsprop: the decayed value of the 1 at which its squares begin
};

/// base^exponent for whole exponents >= 0, by squaring. The error is at most exponent times the
/// rounding error of one product.
PENSTOCK_DEVICE double whole_power(double base, std::int64_t exponent) {
  double power = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) power *= base;
    base *= base;
  }
  return power;
}

template <UpdateRule Rule>
PENSTOCK_DEVICE UpdateFactors factors_of(const UpdateWeights& call, std::int32_t chunk) {
  const Hyper& hyper = call.scalars->hyper;
  const double* const constants = call.constants;
  UpdateFactors factors = {};
  factors.rate = hyper.learning_rate;
  factors.decay = call.chunks[chunk].flag ? hyper.weight_decay : 0.F;
  factors.limit = hyper.gradient_clip > 0 ? hyper.gradient_clip : float_of_bits(0x7f800000U);
  factors.gradient_scale = call.gradient_scale;
  factors.keep[0] = static_cast<float>(constants[0]);
  factors.keep[1] = static_cast<float>(constants[1]);
  if constexpr (Rule == UpdateRule::rmsprop) {
    factors.take[0] = 1.F - factors.keep[0];
    factors.epsilon = static_cast<float>(constants[2]);
    factors.start = static_cast<float>(whole_power(double{factors.keep[0]}, hyper.step + 1));
  }
  if constexpr (Rule == UpdateRule::adam) {
    const double first = whole_power(constants[0], hyper.step + 1);
    const double second = whole_power(constants[1], hyper.step + 1);
    factors.rate = static_cast<float>(double{hyper.learning_rate} * sqrt(1 - second) / (1 - first));
    factors.take[0] = static_cast<float>(1 - constants[0]);
    factors.take[1] = static_cast<float>(1 - constants[1]);
    factors.epsilon = static_cast<float>(constants[2]);
  }
  if constexpr (Rule == UpdateRule::lars) factors.rate *= call.trust[chunk];
  return factors;
}

/// Changes one weight and its optimiser state.
template <UpdateRule Rule>
PENSTOCK_DEVICE void update_one(const UpdateFactors& f, float gradient, float& weight,
                                float& state0, float& state1) {
  const float clipped_decay = Rule == UpdateRule::lars ? 0.F : f.decay;
  const float decayed = f.gradient_scale * gradient + clipped_decay * weight;
  const float g = smaller(larger(decayed, -f.limit), f.limit);
  if constexpr (Rule == UpdateRule::sgd) {
    weight -= f.rate * g;
  } else if constexpr (Rule == UpdateRule::momentum) {
    state0 = f.keep[0] * state0 + g;
    weight -= f.rate * state0;
  } else if constexpr (Rule == UpdateRule::nesterov) {
    state0 = f.keep[0] * state0 + g;
    weight -= f.rate * (g + f.keep[0] * state0);
  } else if constexpr (Rule == UpdateRule::rmsprop) {
    state0 = f.keep[0] * state0 + f.take[0] * g * g;
    state1 = f.keep[1] * state1 + f.rate * g / sqrtf(state0 + f.start + f.epsilon);
    weight -= state1;
  } else if constexpr (Rule == UpdateRule::lars) {
    state0 = f.keep[0] * state0 + f.rate * (g + f.decay * weight);
    weight -= state0;
  } else {
    state0 = f.keep[0] * state0 + f.take[0] * g;
    state1 = f.keep[1] * state1 + f.take[1] * g * g;
    weight -= f.rate * state0 / (sqrtf(state1) + f.epsilon);
  }
}

template <UpdateRule Rule>
struct UpdateWeightsBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = 3;
  static constexpr int kStates = Rule == UpdateRule::sgd                                   ? 0
                                 : Rule == UpdateRule::rmsprop || Rule == UpdateRule::adam ? 2
                                                                                           : 1;

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const UpdateWeights& call) {
    if (block.row_block() >= call.chunk_count) return;
    const bool finite = all_finite(block, call.finite);
    const ArenaChunk chunk = call.chunks[block.row_block()];
    auto& factors = block.template shared<UpdateFactors>();
    typename Block::template PerThread<float> squares(block);
    block.for_each_thread([&](std::int32_t thread) {
      if (thread == 0) factors = factors_of<Rule>(call, block.row_block());
    });
    block.for_each_thread([&](std::int32_t thread) {
      const UpdateFactors f = factors;
      squares[thread] = finite ? share<true>(call, chunk, f, thread, block.threads())
                               : share<false>(call, chunk, f, thread, block.threads());
    });
    const float sum = block.sum(squares);
    block.for_each_thread([&](std::int32_t thread) {
      if (thread == 0) call.squares[block.row_block()] = chunk.flag ? sum : 0.F;
    });
  }

 private:
  template <int Width>
  struct Item {
    Packed<float, Width> weight, gradient, state0, state1;
  };
  template <int Width>
  static PENSTOCK_DEVICE Item<Width> get(const UpdateWeights& call, std::size_t at) {
    Item<Width> item = {};
    item.weight = load<Width>(static_cast<const float*>(call.weights + at));
    item.gradient = load<Width>(call.gradients + at);
    if constexpr (kStates > 0) {
      item.state0 = load<Width>(static_cast<const float*>(call.state[0] + at));
    }
    if constexpr (kStates > 1) {
      item.state1 = load<Width>(static_cast<const float*>(call.state[1] + at));
    }
    return item;
  }
  /// Returns the sum of squares of the weights before the update.
  template <bool Change, int Width>
  static PENSTOCK_DEVICE float use(const UpdateWeights& call, const UpdateFactors& f,
                                   std::size_t at, const Item<Width>& item) {
    Lanes<Width> weight = unpack<float, Width>(item.weight);
    Lanes<Width> state0 = unpack<float, Width>(item.state0);
    Lanes<Width> state1 = unpack<float, Width>(item.state1);
    const Lanes<Width> gradient = unpack<float, Width>(item.gradient);
    float squares = 0;
    PENSTOCK_UNROLL
    for (int k = 0; k < Width; ++k) {
      squares += weight.of[k] * weight.of[k];
      if constexpr (Change) {
        update_one<Rule>(f, gradient.of[k], weight.of[k], state0.of[k], state1.of[k]);
      }
    }
    if constexpr (Change) {
      store_lanes(call.weights + at, weight);
      if constexpr (kStates > 0) store_lanes(call.state[0] + at, state0);
      if constexpr (kStates > 1) store_lanes(call.state[1] + at, state1);
    }
    return squares;
  }
  /// One thread's part.
  template <bool Change>
  static PENSTOCK_DEVICE float share(const UpdateWeights& call, const ArenaChunk& chunk,
                                     const UpdateFactors& f, std::int32_t thread,
                                     std::int32_t threads) {
    bool aligned = in_fours(call.weights + chunk.first) && in_fours(call.gradients + chunk.first);
    if constexpr (kStates > 0) aligned = aligned && in_fours(call.state[0] + chunk.first);
    if constexpr (kStates > 1) aligned = aligned && in_fours(call.state[1] + chunk.first);
    float squares = 0;
    const auto place = [&](std::int64_t i) { return chunk.first + static_cast<std::size_t>(i); };
    for_each_four(
        aligned, chunk.count, thread, threads,
        [&](const Column& column) {
          walk<kStates == 2 ? 2 : 4>(
              column,
              [&](std::int64_t i) { return get<kArenaWidth>(call, place(i * kArenaWidth)); },
              [&](std::int64_t i, const Item<kArenaWidth>& item) {
                squares += use<Change>(call, f, place(i * kArenaWidth), item);
              });
        },
        [&](std::int64_t i) { squares += use<Change>(call, f, place(i), get<1>(call, place(i))); });
    return squares;
  }
};

template <class Launch>
void select(const UpdateWeights& call, const Launch& launch) {
  const Geometry geometry = chunk_geometry(call.chunk_count);
  switch (call.rule) {
    case UpdateRule::sgd:
      return launch(Selected<UpdateWeightsBody<UpdateRule::sgd>>{}, geometry, call);
    case UpdateRule::momentum:
      return launch(Selected<UpdateWeightsBody<UpdateRule::momentum>>{}, geometry, call);
    case UpdateRule::nesterov:
      return launch(Selected<UpdateWeightsBody<UpdateRule::nesterov>>{}, geometry, call);
    case UpdateRule::rmsprop:
      return launch(Selected<UpdateWeightsBody<UpdateRule::rmsprop>>{}, geometry, call);
    case UpdateRule::adam:
      return launch(Selected<UpdateWeightsBody<UpdateRule::adam>>{}, geometry, call);
    case UpdateRule::lars:
      return launch(Selected<UpdateWeightsBody<UpdateRule::lars>>{}, geometry, call);
  }
}

// ---- layer-wise rules: one ratio per tensor, which its chunks share ---------

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
