// SPDX-License-Identifier: Apache-2.0
// Builds the DnnGraphs of a training step: plain convolutions, and convolutions fused with the
// batch norms before or after them. The Planner decides whether an engine can compute a graph on a
// device. cuDNN 9 has engines for the fused graphs only on Hopper and only in f16.
//
// A linear layer is a convolution whose kernel is as large as its input: x [N, C, H, W], w [K, C,
// H, W], y [N, K, 1, 1].
//
// In every result the named tensors have memory and all others are virtual. kNoTensor: the variant
// does not have this tensor. Convolved tensors have the shape's dtype; sums and statistics are f32.
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

/// The tensors that a batch norm's backward pass reads and writes; all but x are per channel. The
/// gradient of x is dy_factor * masked + x_factor * x + constant.
struct BatchNormTensors {
  DnnTensorId x = kNoTensor, mean = kNoTensor, inverse_deviation = kNoTensor;
  DnnTensorId scale = kNoTensor, shift = kNoTensor;
  DnnTensorId dscale = kNoTensor, dshift = kNoTensor;
  DnnTensorId dy_factor = kNoTensor, x_factor = kNoTensor, constant = kNoTensor;
};

/// A graph with its tensors that have memory, by the names in the formulas below.
struct DnnPattern {
  DnnGraph graph;
  DnnTensorId x = kNoTensor, w = kNoTensor, y = kNoTensor;
  DnnTensorId dx = kNoTensor, dw = kNoTensor, dy = kNoTensor;
  DnnTensorId scale = kNoTensor, shift = kNoTensor;  ///< of the batch norm before the convolution
  DnnTensorId residual = kNoTensor, residual_scale = kNoTensor, residual_shift = kNoTensor;
  DnnTensorId u = kNoTensor, sum = kNoTensor, square_sum = kNoTensor;
  DnnTensorId addend = kNoTensor, shortcut = kNoTensor, masked = kNoTensor;
  BatchNormTensors norm{}, shortcut_norm{};
};

/// y = x * w.
DnnPattern conv_forward(const ConvolutionShape& shape);
/// dx = the gradient of x + beta * dx.
DnnPattern conv_backward_data(const ConvolutionShape& shape, float beta);
/// dw = the gradient of w, in the dtype of x: no engine widens it.
DnnPattern conv_backward_filter(const ConvolutionShape& shape);

/// y = x * w, and the sums of y and of y^2 per filter. The batch norm of y follows from these sums.
DnnPattern conv_statistics(const ConvolutionShape& shape);
/// y = relu(x * scale + shift) * w, and the sums of y. x is the input of the batch norm before the
/// convolution. `scale` and `shift` are that norm's multiplier and addend, in the shape's dtype.
DnnPattern normalised_conv_statistics(const ConvolutionShape& shape);
/// The same after the end of a residual block: u = relu(x * scale + shift + residual), y = u * w
/// and the sums of y. `dual`: the shortcut has its own batch norm, residual * residual_scale +
/// residual_shift. u is written because the next block end adds it.
DnnPattern residual_normalised_conv_statistics(const ConvolutionShape& shape, bool dual);
/// dw of the convolution in normalised_conv_statistics. Computes the activation again.
DnnPattern normalised_conv_backward_filter(const ConvolutionShape& shape);

/// The operand that was added to the batch norm before the ReLU: none, a tensor, or a second batch
/// norm.
enum class Shortcut : std::uint8_t { none, tensor, batch_norm };

/// The gradient of a convolution's input, which is the output of a batch norm and a ReLU, and all
/// sums of that norm's backward pass:
///   z = norm(x) [+ shortcut, or norm(shortcut's x)]
///   masked = z > 0 ? the gradient of the convolution's input [+ addend] : 0
/// `add`: there is an addend, the gradient that reaches the block's end on another path. The
/// convolution's input is [images, channels, height, width] of the shape; x, addend, shortcut and
/// masked have the same shape.
DnnPattern conv_backward_data_batch_norm(const ConvolutionShape& shape, bool add,
                                         Shortcut shortcut);

}  // namespace penstock::gpu
