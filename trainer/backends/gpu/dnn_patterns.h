// SPDX-License-Identifier: Apache-2.0
// The DnnGraphs that a step is made of: plain convolutions, and convolutions fused with the batch
// norms on either side. Graphs only: whether an engine computes one on a device is the Planner's
// answer. Of the fused forms cuDNN 9 has engines for Hopper in f16 alone.
//
// A linear layer is a convolution whose kernel is as large as its input: x [N, C, H, W],
// w [K, C, H, W], y [N, K, 1, 1].
//
// In every result the tensors named have memory, all others are virtual; kNoTensor: not part of
// that variant. Convolved tensors have the shape's dtype, sums and statistics are f32.
#pragma once

#include <cstdint>

#include "dataflow/batch.h"
#include "trainer/backends/gpu/dnn_graph.h"
#include "trainer/graph.h"

namespace penstock::gpu {

/// x [images, channels, height, width], w [filters, channels / groups, kernel_h, kernel_w],
/// y [images, filters, out_height(), out_width()].
struct ConvolutionShape {
  std::int64_t images = 1, channels = 1, height = 1, width = 1, filters = 1, groups = 1;
  Window window{};
  DType dtype = DType::f16;

  std::int64_t out_height() const noexcept;
  std::int64_t out_width() const noexcept;
};

/// y = x * w.
struct ConvForward {
  DnnGraph graph;
  DnnTensorId x = kNoTensor, w = kNoTensor, y = kNoTensor;
};
ConvForward conv_forward(const ConvolutionShape& shape);

/// dx = the gradient of x + beta * dx.
struct ConvBackwardData {
  DnnGraph graph;
  DnnTensorId dy = kNoTensor, w = kNoTensor, dx = kNoTensor;
};
ConvBackwardData conv_backward_data(const ConvolutionShape& shape, float beta);

/// dw = the gradient of w, in the dtype of x: no engine widens it.
struct ConvBackwardFilter {
  DnnGraph graph;
  DnnTensorId x = kNoTensor, dy = kNoTensor, dw = kNoTensor;
};
ConvBackwardFilter conv_backward_filter(const ConvolutionShape& shape);

}  // namespace penstock::gpu
