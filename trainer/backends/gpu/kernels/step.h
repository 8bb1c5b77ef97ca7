// SPDX-License-Identifier: Apache-2.0
// Kernels that set a step's inputs in device memory, compute its loss and summarise its results.
#pragma once

#include <cmath>

#include "trainer/backends/gpu/kernel_calls.h"
#include "trainer/backends/gpu/kernels/columns.h"
#include "trainer/backends/gpu/kernels/select.h"

namespace penstock::gpu {

PENSTOCK_DEVICE bool is_finite(float value) {
  return (bits_of_float(value) & 0x7f800000U) != 0x7f800000U;
}

/// True if CheckFinite found all parts finite, or if `finite` is null.
template <class Block>
PENSTOCK_DEVICE bool all_finite(Block& block, const std::int32_t* finite) {
  if (finite == nullptr) return true;
  typename Block::template PerThread<std::int32_t> bad(block);
  block.for_each_thread([&](std::int32_t thread) {
    bad[thread] = 0;
    for (std::int32_t i = thread; i < kFiniteBlocks; i += block.threads()) {
      bad[thread] += finite[i] == 0 ? 1 : 0;
    }
  });
  return block.sum(bad) == 0;
}

struct SetStepBody {
  static constexpr std::int32_t kThreads = 1, kPerMultiprocessor = 1;
  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const SetStep& call) {
    block.for_each_thread([&](std::int32_t) {
      call.scalars->step = call.step;
      call.scalars->valid = call.valid;
      if (call.loss_scale != 0) call.scalars->loss_scale = call.loss_scale;
    });
  }
};
template <class Launch>
void select(const SetStep& call, const Launch& launch) {
  launch(Selected<SetStepBody>{}, Geometry{}, call);
}

struct SetHyperBody {
  static constexpr std::int32_t kThreads = 1, kPerMultiprocessor = 1;
  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const SetHyper& call) {
    block.for_each_thread([&](std::int32_t) { call.scalars->hyper = call.hyper; });
  }
};
template <class Launch>
void select(const SetHyper& call, const Launch& launch) {
  launch(Selected<SetHyperBody>{}, Geometry{}, call);
}

struct SummariseStepBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = 1;

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const SummariseStep& call) {
    typename Block::template PerThread<double> loss(block);
    typename Block::template PerThread<std::int32_t> top1(block), top5(block);
    const std::int32_t valid = call.scalars->valid;
    block.for_each_thread([&](std::int32_t thread) {
      loss[thread] = 0;
      top1[thread] = 0;
      top5[thread] = 0;
      if (call.loss == nullptr) return;
      for (std::int32_t i = thread; i < smaller(valid, call.images); i += block.threads()) {
        loss[thread] += double{call.loss[i]};
        top1[thread] += call.above[i] < 1 ? 1 : 0;
        top5[thread] += call.above[i] < 5 ? 1 : 0;
      }
    });
    const double sum = block.sum(loss);
    const std::int32_t first = block.sum(top1), fifth = block.sum(top5);
    block.for_each_thread([&](std::int32_t thread) {
      if (thread != 0) return;
      StepResult& result = *call.result;
      result.loss = valid > 0 ? static_cast<float>(sum / valid) : 0.F;
      result.l2_loss = 0;
      result.top1 = first;
      result.top5 = fifth;
      result.images = valid;
      result.finite = is_finite(result.loss);
    });
  }
};
template <class Launch>
void select(const SummariseStep& call, const Launch& launch) {
  launch(Selected<SummariseStepBody>{}, Geometry{1, 1, kBlockThreads}, call);
}

struct SummariseUpdateBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = 1;

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const SummariseUpdate& call) {
    const bool finite = all_finite(block, call.finite);
    typename Block::template PerThread<double> squares(block);
    block.for_each_thread([&](std::int32_t thread) {
      squares[thread] = 0;
      for (std::int32_t i = thread; i < call.chunk_count; i += block.threads()) {
        squares[thread] += double{call.squares[i]};
      }
    });
    const double sum = block.sum(squares);
    block.for_each_thread([&](std::int32_t thread) {
      if (thread != 0) return;
      const double decay = double{call.scalars->hyper.weight_decay};
      call.result->l2_loss = static_cast<float>(decay / 2 * sum);
      if (!finite) call.result->finite = false;
    });
  }
};
template <class Launch>
void select(const SummariseUpdate& call, const Launch& launch) {
  launch(Selected<SummariseUpdateBody>{}, Geometry{1, 1, kBlockThreads}, call);
}

struct AdaptLossScaleBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = 1;

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const AdaptLossScale& call) {
    const bool finite = all_finite(block, call.finite);
    block.for_each_thread([&](std::int32_t thread) {
      if (thread != 0) return;
      StepScalars& scalars = *call.scalars;
      const LossScale next =
          next_loss_scale({scalars.loss_scale, scalars.good_steps}, finite, call.count_to);
      scalars.loss_scale = next.scale;
      scalars.good_steps = next.good_steps;
    });
  }
};
template <class Launch>
void select(const AdaptLossScale& call, const Launch& launch) {
  launch(Selected<AdaptLossScaleBody>{}, Geometry{1, 1, kBlockThreads}, call);
}

// ---- softmax cross-entropy: one block per image -----------------------------

template <class T>
struct SoftmaxCrossEntropyBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = 4;

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const SoftmaxCrossEntropy& call) {
    const std::int32_t image = block.row_block();
    const bool counts = image < call.scalars->valid;
    const std::int32_t label = call.labels[image];
    if (counts && label >= 0 && label < call.classes) {
      count_and_differentiate(block, call, image);
    } else {
      leave_out(block, call, image, counts ? NAN : 0.F);
    }
  }

 private:
  template <class Block>
  static PENSTOCK_DEVICE void leave_out(Block& block, const SoftmaxCrossEntropy& call,
                                        std::int32_t image, float loss) {
    block.for_each_thread([&](std::int32_t thread) {
      if (thread == 0) {
        call.loss[image] = loss;
        call.above[image] = call.classes;
      }
      if (call.dlogits == nullptr) return;
      T* const dlogits = static_cast<T*>(call.dlogits) + std::int64_t{image} * call.classes;
      for (std::int32_t c = thread; c < call.classes; c += block.threads()) {
        dlogits[c] = from_float<T>(0);
      }
    });
  }
  template <class Block>
  static PENSTOCK_DEVICE void count_and_differentiate(Block& block, const SoftmaxCrossEntropy& call,
                                                      std::int32_t image) {
    const T* const logits = static_cast<const T*>(call.logits) + std::int64_t{image} * call.classes;
    const std::int32_t label = call.labels[image];
    const float own = to_float(logits[label]);
    typename Block::template PerThread<float> most(block), sum(block);
    typename Block::template PerThread<std::int32_t> above(block);
    block.for_each_thread([&](std::int32_t thread) {
      most[thread] = own;
      above[thread] = 0;
      for (std::int32_t c = thread; c < call.classes; c += block.threads()) {
        const float value = to_float(logits[c]);
        most[thread] = larger(most[thread], value);
        above[thread] += value > own ? 1 : 0;
      }
    });
    const float largest = block.largest(most);
    const std::int32_t count = block.sum(above);
    block.for_each_thread([&](std::int32_t thread) {
      sum[thread] = 0;
      for (std::int32_t c = thread; c < call.classes; c += block.threads()) {
        sum[thread] += expf(to_float(logits[c]) - largest);
      }
    });
    const float total = block.sum(sum);
    const float factor = call.scalars->loss_scale / static_cast<float>(call.scalars->valid);
    block.for_each_thread([&](std::int32_t thread) {
      if (thread == 0) {
        call.loss[image] = logf(total) + (largest - own);
        call.above[image] = count;
      }
      if (call.dlogits == nullptr) return;
      T* const dlogits = static_cast<T*>(call.dlogits) + std::int64_t{image} * call.classes;
      for (std::int32_t c = thread; c < call.classes; c += block.threads()) {
        const float share = expf(to_float(logits[c]) - largest) / total;
        dlogits[c] = from_float<T>((share - (c == label ? 1.F : 0.F)) * factor);
      }
    });
  }
};
template <class Launch>
void select(const SoftmaxCrossEntropy& call, const Launch& launch) {
  select_typed<SoftmaxCrossEntropyBody>(call, Geometry{call.images, 1, kBlockThreads}, launch);
}

}  // namespace penstock::gpu
