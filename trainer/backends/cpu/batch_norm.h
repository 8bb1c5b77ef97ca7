// SPDX-License-Identifier: Apache-2.0
// Batch normalisation in training, over activations in blocks of 16 channels (nChw16c). It does in
// two passes over memory what oneDNN's primitive and an addition do in four, keeps no mask for the
// ReLU, and has no barriers of its own: oneDNN 2.6's spin, so that a thread that shares its core
// with a decoder holds up all others.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataflow/batch.h"

namespace penstock::cpu {

constexpr std::int32_t kChannelBlock = 16;

/// Of [images][channels / 16][pixels][16] elements; channels is a multiple of 16.
struct BatchNormShape {
  std::int32_t images = 0, channels = 0;
  std::size_t pixels = 0;
};

/// Per channel, f32.
struct BatchNormWeights {
  const float *scale = nullptr, *shift = nullptr;
  float epsilon = 0;
};

/// y = scale * (x - mean) / sqrt(variance + epsilon) + shift, plus `residual` where that is given,
/// at least 0 if `relu`. Writes the batch's mean and biased variance. Sums of a tile are f32 about
/// one of its elements, sums over tiles are f64.
void batch_norm_forward(DType dtype, const BatchNormShape& shape, const BatchNormWeights& weights,
                        bool relu, const void* x, const void* residual, float* mean,
                        float* variance, void* y);

/// Gradients of x, scale and shift. With `relu` those of y count where y > 0, which is computed
/// again from x; there is no residual then.
void batch_norm_backward(DType dtype, const BatchNormShape& shape, const BatchNormWeights& weights,
                         bool relu, const void* x, const void* gradient_y, const float* mean,
                         const float* variance, void* gradient_x, float* gradient_scale,
                         float* gradient_shift);

}  // namespace penstock::cpu
