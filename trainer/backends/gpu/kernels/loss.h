// SPDX-License-Identifier: Apache-2.0
// Softmax cross-entropy: one block per image.
#pragma once

#include <cmath>

#include "trainer/backends/gpu/kernel_calls.h"
#include "trainer/backends/gpu/kernels/columns.h"
#include "trainer/backends/gpu/kernels/select.h"

namespace penstock::gpu {

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
  with_type(call.type, [&]<class T>(T) {
    launch(Selected<SoftmaxCrossEntropyBody<T>>{}, Geometry{call.images, 1, kBlockThreads}, call);
  });
}

}  // namespace penstock::gpu
