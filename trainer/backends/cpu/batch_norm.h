// SPDX-License-Identifier: Apache-2.0
// Batch normalisation for training, on activations in blocks of 16 channels (nChw16c) and with
// channels last (nhwc). It makes two passes over memory, where oneDNN's primitive and an addition
// make four, and keeps no mask for the ReLU. It has no barriers: those of oneDNN 2.6 spin, so a
// thread that shares its core with a decoder would delay all other threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataflow/batch.h"

namespace penstock::cpu {

constexpr std::int32_t kChannelBlock = 16;

/// Shape of [images][channels / together][pixels][together] elements. `together` is 16 for nChw16c
/// and the number of channels for nhwc. Both numbers are multiples of 16.
struct BatchNormShape {
  std::int32_t images = 0, channels = 0;
  std::size_t pixels = 0;
  std::int32_t together = kChannelBlock;
};

/// One f32 per channel.
struct BatchNormWeights {
  const float *scale = nullptr, *shift = nullptr;
  float epsilon = 0;
};

/// y = scale * (x - mean) / sqrt(variance + epsilon) + shift, plus `residual` if it is given; at
/// least 0 if `relu`. Writes the batch's mean and biased variance. Sums of at most a few
/// hundred elements are f32, relative to one element of the channel; sums of these are f64.
void batch_norm_forward(DType dtype, const BatchNormShape& shape, const BatchNormWeights& weights,
                        bool relu, const void* x, const void* residual, float* mean,
                        float* variance, void* y);

/// Computes the gradients of x, scale and shift. With `relu`, gradients of y count only if y > 0. y
/// is computed again from x, so there must be no residual.
void batch_norm_backward(DType dtype, const BatchNormShape& shape, const BatchNormWeights& weights,
                         bool relu, const void* x, const void* gradient_y, const float* mean,
                         const float* variance, void* gradient_x, float* gradient_scale,
                         float* gradient_shift);

}  // namespace penstock::cpu
