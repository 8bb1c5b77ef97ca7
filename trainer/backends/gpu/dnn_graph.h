// SPDX-License-Identifier: Apache-2.0
// A small graph of operations that the DNN library computes as one, such as a convolution with the
// batch norm around it. It is plain data: tests interpret it, the CUDA library gives it to cuDNN,
// and its text is the key of a plan on disk. The operations and their names follow cuDNN's graph
// API.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "dataflow/batch.h"

namespace penstock::gpu {

/// Index into DnnGraph::tensors.
using DnnTensorId = std::int32_t;
constexpr DnnTensorId kNoTensor = -1;

/// Dimensions are [N, C, H, W], the library's order; the layout is N, H, W, C without gaps. Weights
/// of a convolution are [K, C / groups, R, S], laid out as K, R, S, C. A tensor with one value per
/// channel is [1, C, 1, 1].
struct DnnTensor {
  std::array<std::int64_t, 4> shape{1, 1, 1, 1};
  DType dtype = DType::f32;
  /// Exists only inside the operation and has no memory.
  bool is_virtual = false;

  std::size_t count() const noexcept {
    return static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]);
  }
  std::size_t bytes() const noexcept { return count() * size_of(dtype); }
  bool operator==(const DnnTensor&) const = default;
};

/// All operations sum in f32.
struct DnnWindow {
  std::array<std::int64_t, 2> stride{1, 1}, before{0, 0}, after{0, 0};  ///< of H and W; paddings
  bool operator==(const DnnWindow&) const = default;
};

/// y = x * w + beta * y. The number of groups is C of x divided by C of w.
struct DnnConvolution {
  DnnWindow window{};
  DnnTensorId x = kNoTensor, w = kNoTensor, y = kNoTensor;
  float beta = 0;
  bool operator==(const DnnConvolution&) const = default;
};
/// dx = the gradient of x + beta * dx.
struct DnnConvolutionBackwardData {
  DnnWindow window{};
  DnnTensorId dy = kNoTensor, w = kNoTensor, dx = kNoTensor;
  float beta = 0;
  bool operator==(const DnnConvolutionBackwardData&) const = default;
};
/// dw = the gradient of w.
struct DnnConvolutionBackwardFilter {
  DnnWindow window{};
  DnnTensorId x = kNoTensor, dy = kNoTensor, dw = kNoTensor;
  bool operator==(const DnnConvolutionBackwardFilter&) const = default;
};

/// add, subtract, multiply: y = x op b, where b may have one value per channel.
/// relu: y = max(x, 0). relu_backward: y = b > 0 ? x : 0, where x is the gradient of the output and
/// b the ReLU's input.
enum class PointwiseMode : std::uint8_t { add, subtract, multiply, relu, relu_backward };
struct DnnPointwise {
  PointwiseMode mode = PointwiseMode::add;
  DnnTensorId x = kNoTensor, b = kNoTensor, y = kNoTensor;
  bool operator==(const DnnPointwise&) const = default;
};

/// Sums of x and of x^2 over N, H and W. Both are [1, C, 1, 1] of f32.
struct DnnGenerateStatistics {
  DnnTensorId x = kNoTensor, sum = kNoTensor, square_sum = kNoTensor;
  bool operator==(const DnnGenerateStatistics&) const = default;
};

/// The sums of batch norm's backward pass over N, H and W, and the factors of its gradient: dx =
/// dy_factor * dy + x_factor * x + constant. All are [1, C, 1, 1] of f32.
struct DnnBatchNormBackwardWeights {
  DnnTensorId x = kNoTensor, dy = kNoTensor;
  DnnTensorId mean = kNoTensor, inverse_deviation = kNoTensor, scale = kNoTensor;
  DnnTensorId dscale = kNoTensor, dshift = kNoTensor;
  DnnTensorId dy_factor = kNoTensor, x_factor = kNoTensor, constant = kNoTensor;
  bool operator==(const DnnBatchNormBackwardWeights&) const = default;
};

using DnnOperation =
    std::variant<DnnConvolution, DnnConvolutionBackwardData, DnnConvolutionBackwardFilter,
                 DnnPointwise, DnnGenerateStatistics, DnnBatchNormBackwardWeights>;

struct DnnGraph {
  std::vector<DnnTensor> tensors;
  std::vector<DnnOperation> operations;  ///< each operation comes after those that it reads

  DnnTensorId add(const DnnTensor& tensor) {
    tensors.push_back(tensor);
    return static_cast<DnnTensorId>(tensors.size()) - 1;
  }
  const DnnTensor& tensor(DnnTensorId id) const { return tensors[static_cast<std::size_t>(id)]; }
  bool operator==(const DnnGraph&) const = default;
};

/// True if the graph multiplies f32. A value computed before a product is rounded to the type of
/// the product's other operand.
bool multiplies_f32(const DnnGraph& graph);
/// One line that describes the whole graph: equal texts mean equal graphs.
std::string to_text(const DnnGraph& graph);

}  // namespace penstock::gpu
