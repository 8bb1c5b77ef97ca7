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

}  // namespace

std::int64_t ConvolutionShape::out_height() const noexcept {
  return (height + window.top + window.bottom - window.kernel_h) / window.stride + 1;
}
std::int64_t ConvolutionShape::out_width() const noexcept {
  return (width + window.left + window.right - window.kernel_w) / window.stride + 1;
}

ConvForward conv_forward(const ConvolutionShape& shape) {
  ConvForward result;
  result.x = result.graph.add(input_of(shape));
  result.w = result.graph.add(weights_of(shape));
  result.y = result.graph.add(output_of(shape));
  result.graph.operations.push_back(
      DnnConvolution{.window = window_of(shape), .x = result.x, .w = result.w, .y = result.y});
  return result;
}

ConvBackwardData conv_backward_data(const ConvolutionShape& shape, float beta) {
  ConvBackwardData result;
  result.dy = result.graph.add(output_of(shape));
  result.w = result.graph.add(weights_of(shape));
  result.dx = result.graph.add(input_of(shape));
  result.graph.operations.push_back(DnnConvolutionBackwardData{
      .window = window_of(shape), .dy = result.dy, .w = result.w, .dx = result.dx, .beta = beta});
  return result;
}

ConvBackwardFilter conv_backward_filter(const ConvolutionShape& shape) {
  ConvBackwardFilter result;
  result.x = result.graph.add(input_of(shape));
  result.dy = result.graph.add(output_of(shape));
  result.dw = result.graph.add(weights_of(shape));
  result.graph.operations.push_back(DnnConvolutionBackwardFilter{
      .window = window_of(shape), .x = result.x, .dy = result.dy, .dw = result.dw});
  return result;
}

}  // namespace penstock::gpu
