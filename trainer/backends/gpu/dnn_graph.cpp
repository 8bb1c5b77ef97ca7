// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/dnn_graph.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace penstock::gpu {
namespace {

char letter_of(DType dtype) {
  switch (dtype) {
    case DType::u8:
      return 'u';
    case DType::i32:
      return 'i';
    case DType::f16:
      return 'h';
    case DType::bf16:
      return 'b';
    case DType::f32:
      return 'f';
  }
  return '?';
}

std::string text_of(const DnnWindow& window) {
  return fmt::format("s{}p{}q{}", fmt::join(window.stride, ","), fmt::join(window.before, ","),
                     fmt::join(window.after, ","));
}
std::string text_of(const DnnConvolution& op) {
  return fmt::format("conv({},{},{},{},{})", text_of(op.window), op.x, op.w, op.y, op.beta);
}
std::string text_of(const DnnConvolutionBackwardData& op) {
  return fmt::format("dgrad({},{},{},{},{})", text_of(op.window), op.dy, op.w, op.dx, op.beta);
}
std::string text_of(const DnnConvolutionBackwardFilter& op) {
  return fmt::format("wgrad({},{},{},{})", text_of(op.window), op.x, op.dy, op.dw);
}
std::string text_of(const DnnPointwise& op) {
  static constexpr std::array kNames = {"add", "sub", "mul", "relu", "drelu"};
  return fmt::format("{}({},{},{})", kNames[static_cast<std::size_t>(op.mode)], op.x, op.b, op.y);
}
std::string text_of(const DnnGenerateStatistics& op) {
  return fmt::format("stats({},{},{})", op.x, op.sum, op.square_sum);
}
std::string text_of(const DnnBatchNormBackwardWeights& op) {
  return fmt::format("dbn({},{},{},{},{},{},{},{},{},{})", op.x, op.dy, op.mean,
                     op.inverse_deviation, op.scale, op.dscale, op.dshift, op.dy_factor,
                     op.x_factor, op.constant);
}

}  // namespace

bool multiplies_f32(const DnnGraph& graph) {
  const auto multiplies = [&](const auto& op) {
    DnnTensorId operand = kNoTensor;
    if constexpr (requires { op.w; }) operand = op.w;
    if constexpr (requires { op.dw; }) operand = op.dy;
    return operand != kNoTensor && graph.tensor(operand).dtype == DType::f32;
  };
  return std::ranges::any_of(graph.operations, [&](const DnnOperation& operation) {
    return std::visit(multiplies, operation);
  });
}

std::string to_text(const DnnGraph& graph) {
  std::string text;
  for (const DnnTensor& tensor : graph.tensors) {
    text += fmt::format("{}{}{} ", letter_of(tensor.dtype), tensor.is_virtual ? "~" : "",
                        fmt::join(tensor.shape, "x"));
  }
  for (const DnnOperation& operation : graph.operations) {
    text += std::visit([](const auto& op) { return text_of(op); }, operation) + ' ';
  }
  if (!text.empty()) text.pop_back();
  return text;
}

}  // namespace penstock::gpu
