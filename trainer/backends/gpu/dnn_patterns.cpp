// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/dnn_patterns.h"

namespace penstock::gpu {
namespace {

DnnTensor input_of(const ConvolutionShape& shape) {
  return {.shape = {shape.images, shape.channels, shape.height, shape.width}, .dtype = shape.dtype};
}
DnnTensor weights_of(const ConvolutionShape& shape) {
  return {.shape = {shape.filters, shape.channels / shape.groups, shape.window.kernel_h,
                    shape.window.kernel_w},
          .dtype = shape.dtype};
}
DnnTensor output_of(const ConvolutionShape& shape) {
  return {.shape = {shape.images, shape.filters, shape.out_height(), shape.out_width()},
          .dtype = shape.dtype};
}
DnnWindow window_of(const ConvolutionShape& shape) {
  const Window& window = shape.window;
  return {.stride = {window.stride, window.stride},
          .before = {window.top, window.left},
          .after = {window.bottom, window.right}};
}

DnnTensor per_channel(std::int64_t channels, DType dtype) {
  return {.shape = {1, channels, 1, 1}, .dtype = dtype};
}

/// Adds a tensor between two operations. It has no memory. Engines require a specific type for it.
DnnTensorId add_between(DnnGraph& graph, const ConvolutionShape& shape, DType dtype) {
  DnnTensor tensor = input_of(shape);
  tensor.dtype = dtype;
  tensor.is_virtual = true;
  return graph.add(tensor);
}

void add_pointwise(DnnGraph& graph, PointwiseMode mode, DnnTensorId x, DnnTensorId b,
                   DnnTensorId y) {
  graph.operations.push_back(DnnPointwise{.mode = mode, .x = x, .b = b, .y = y});
}

/// Adds x op b; only the next operation reads it.
DnnTensorId then(DnnGraph& graph, const ConvolutionShape& shape, DType dtype, PointwiseMode mode,
                 DnnTensorId x, DnnTensorId b) {
  const DnnTensorId y = add_between(graph, shape, dtype);
  add_pointwise(graph, mode, x, b, y);
  return y;
}

/// Adds y = input * w and its sums. Fills in the parts of a result that all such graphs share.
void finish_with_statistics(DnnPattern& result, const ConvolutionShape& shape, DnnTensorId input) {
  result.w = result.graph.add(weights_of(shape));
  result.y = result.graph.add(output_of(shape));
  result.sum = result.graph.add(per_channel(shape.filters, DType::f32));
  result.square_sum = result.graph.add(per_channel(shape.filters, DType::f32));
  result.graph.operations.push_back(
      DnnConvolution{.window = window_of(shape), .x = input, .w = result.w, .y = result.y});
  result.graph.operations.push_back(
      DnnGenerateStatistics{.x = result.y, .sum = result.sum, .square_sum = result.square_sum});
}

/// Adds x * scale + shift with their three tensors; `dtype` is the type of tensors without memory.
DnnTensorId start_with_norm(DnnPattern& result, const ConvolutionShape& shape, DType dtype) {
  result.x = result.graph.add(input_of(shape));
  result.scale = result.graph.add(per_channel(shape.channels, shape.dtype));
  result.shift = result.graph.add(per_channel(shape.channels, shape.dtype));
  const DnnTensorId scaled =
      then(result.graph, shape, dtype, PointwiseMode::multiply, result.x, result.scale);
  return then(result.graph, shape, dtype, PointwiseMode::add, scaled, result.shift);
}

/// Adds the inputs of a batch norm and computes its output again.
DnnTensorId start_norm_again(DnnGraph& graph, const ConvolutionShape& shape,
                             BatchNormTensors& norm) {
  const DnnTensor channel = per_channel(shape.channels, DType::f32);
  norm.x = graph.add(input_of(shape));
  norm.mean = graph.add(channel);
  norm.inverse_deviation = graph.add(channel);
  norm.scale = graph.add(channel);
  norm.shift = graph.add(channel);
  const auto next = [&](PointwiseMode mode, DnnTensorId x, DnnTensorId b) {
    return then(graph, shape, DType::f32, mode, x, b);
  };
  const DnnTensorId centred = next(PointwiseMode::subtract, norm.x, norm.mean);
  const DnnTensorId unit = next(PointwiseMode::multiply, centred, norm.inverse_deviation);
  const DnnTensorId scaled = next(PointwiseMode::multiply, unit, norm.scale);
  return next(PointwiseMode::add, scaled, norm.shift);
}

void add_norm_sums(DnnGraph& graph, const ConvolutionShape& shape, DnnTensorId dy,
                   BatchNormTensors& norm) {
  const DnnTensor channel = per_channel(shape.channels, DType::f32);
  norm.dscale = graph.add(channel);
  norm.dshift = graph.add(channel);
  norm.dy_factor = graph.add(channel);
  norm.x_factor = graph.add(channel);
  norm.constant = graph.add(channel);
  graph.operations.push_back(
      DnnBatchNormBackwardWeights{.x = norm.x,
                                  .dy = dy,
                                  .mean = norm.mean,
                                  .inverse_deviation = norm.inverse_deviation,
                                  .scale = norm.scale,
                                  .dscale = norm.dscale,
                                  .dshift = norm.dshift,
                                  .dy_factor = norm.dy_factor,
                                  .x_factor = norm.x_factor,
                                  .constant = norm.constant});
}

}  // namespace

std::int64_t ConvolutionShape::out_height() const noexcept {
  return (height + window.top + window.bottom - window.kernel_h) / window.stride + 1;
}
std::int64_t ConvolutionShape::out_width() const noexcept {
  return (width + window.left + window.right - window.kernel_w) / window.stride + 1;
}

DnnPattern conv_forward(const ConvolutionShape& shape) {
  DnnPattern result;
  result.x = result.graph.add(input_of(shape));
  result.w = result.graph.add(weights_of(shape));
  result.y = result.graph.add(output_of(shape));
  result.graph.operations.push_back(
      DnnConvolution{.window = window_of(shape), .x = result.x, .w = result.w, .y = result.y});
  return result;
}

DnnPattern conv_backward_data(const ConvolutionShape& shape, float beta) {
  DnnPattern result;
  result.dy = result.graph.add(output_of(shape));
  result.w = result.graph.add(weights_of(shape));
  result.dx = result.graph.add(input_of(shape));
  result.graph.operations.push_back(DnnConvolutionBackwardData{
      .window = window_of(shape), .dy = result.dy, .w = result.w, .dx = result.dx, .beta = beta});
  return result;
}

DnnPattern conv_backward_filter(const ConvolutionShape& shape) {
  DnnPattern result;
  result.x = result.graph.add(input_of(shape));
  result.dy = result.graph.add(output_of(shape));
  result.dw = result.graph.add(weights_of(shape));
  result.graph.operations.push_back(DnnConvolutionBackwardFilter{
      .window = window_of(shape), .x = result.x, .dy = result.dy, .dw = result.dw});
  return result;
}

DnnPattern conv_statistics(const ConvolutionShape& shape) {
  DnnPattern result;
  result.x = result.graph.add(input_of(shape));
  finish_with_statistics(result, shape, result.x);
  return result;
}

DnnPattern normalised_conv_statistics(const ConvolutionShape& shape) {
  DnnPattern result;
  const DnnTensorId normalised = start_with_norm(result, shape, DType::f32);
  const DnnTensorId u =
      then(result.graph, shape, DType::f32, PointwiseMode::relu, normalised, kNoTensor);
  finish_with_statistics(result, shape, u);
  return result;
}

DnnPattern residual_normalised_conv_statistics(const ConvolutionShape& shape, bool dual) {
  DnnPattern result;
  DnnGraph& graph = result.graph;
  const auto next = [&](PointwiseMode mode, DnnTensorId x, DnnTensorId b) {
    return then(graph, shape, DType::f32, mode, x, b);
  };
  const DnnTensorId normalised = start_with_norm(result, shape, DType::f32);
  result.residual = graph.add(input_of(shape));
  DnnTensorId shortcut = result.residual;
  if (dual) {
    result.residual_scale = graph.add(per_channel(shape.channels, shape.dtype));
    result.residual_shift = graph.add(per_channel(shape.channels, shape.dtype));
    shortcut = next(PointwiseMode::multiply, shortcut, result.residual_scale);
    shortcut = next(PointwiseMode::add, shortcut, result.residual_shift);
  }
  const DnnTensorId sum = next(PointwiseMode::add, normalised, shortcut);
  result.u = graph.add(input_of(shape));
  add_pointwise(graph, PointwiseMode::relu, sum, kNoTensor, result.u);
  finish_with_statistics(result, shape, result.u);
  return result;
}

DnnPattern normalised_conv_backward_filter(const ConvolutionShape& shape) {
  DnnPattern result;
  const DnnTensorId normalised = start_with_norm(result, shape, shape.dtype);
  const DnnTensorId u =
      then(result.graph, shape, shape.dtype, PointwiseMode::relu, normalised, kNoTensor);
  result.dy = result.graph.add(output_of(shape));
  result.dw = result.graph.add(weights_of(shape));
  result.graph.operations.push_back(DnnConvolutionBackwardFilter{
      .window = window_of(shape), .x = u, .dy = result.dy, .dw = result.dw});
  return result;
}

DnnPattern conv_backward_data_batch_norm(const ConvolutionShape& shape, bool add,
                                         Shortcut shortcut) {
  DnnPattern result;
  DnnGraph& graph = result.graph;
  const auto sum = [&](DnnTensorId x, DnnTensorId b) {
    return then(graph, shape, DType::f32, PointwiseMode::add, x, b);
  };
  result.dy = graph.add(output_of(shape));
  result.w = graph.add(weights_of(shape));
  DnnTensorId gradient = add_between(graph, shape, DType::f32);
  graph.operations.push_back(DnnConvolutionBackwardData{
      .window = window_of(shape), .dy = result.dy, .w = result.w, .dx = gradient});
  if (add) {
    result.addend = graph.add(input_of(shape));
    gradient = sum(gradient, result.addend);
  }
  DnnTensorId z = start_norm_again(graph, shape, result.norm);
  if (shortcut == Shortcut::tensor) {
    result.shortcut = graph.add(input_of(shape));
    z = sum(z, result.shortcut);
  } else if (shortcut == Shortcut::batch_norm) {
    z = sum(z, start_norm_again(graph, shape, result.shortcut_norm));
  }
  result.masked = graph.add(input_of(shape));
  add_pointwise(graph, PointwiseMode::relu_backward, gradient, z, result.masked);
  add_norm_sums(graph, shape, result.masked, result.norm);
  if (shortcut == Shortcut::batch_norm) {
    add_norm_sums(graph, shape, result.masked, result.shortcut_norm);
  }
  return result;
}

}  // namespace penstock::gpu
