// SPDX-License-Identifier: Apache-2.0
// Turns cuDNN's descriptors back into a DnnGraph.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tests/support/gpu/dnn_interpreter.h"
#include "tests/support/gpu/fake/dnn_description.h"

namespace penstock::gpu::fake {
namespace {

using Ints = std::vector<std::int64_t>;

void require(bool holds, const char* otherwise) {
  if (!holds) throw DnnFailure(CUDNN_STATUS_BAD_PARAM, otherwise);
}

DType dtype_of(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_FLOAT:
      return DType::f32;
    case CUDNN_DATA_HALF:
      return DType::f16;
    case CUDNN_DATA_BFLOAT16:
      return DType::bf16;
    default:
      throw DnnFailure(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "the data type of a tensor");
  }
}

PointwiseMode mode_of(cudnnPointwiseMode_t mode) {
  switch (mode) {
    case CUDNN_POINTWISE_ADD:
      return PointwiseMode::add;
    case CUDNN_POINTWISE_SUB:
      return PointwiseMode::subtract;
    case CUDNN_POINTWISE_MUL:
      return PointwiseMode::multiply;
    case CUDNN_POINTWISE_RELU_FWD:
      return PointwiseMode::relu;
    case CUDNN_POINTWISE_RELU_BWD:
      return PointwiseMode::relu_backward;
    default:
      throw DnnFailure(CUDNN_STATUS_NOT_SUPPORTED, "the mode of a pointwise operation");
  }
}

DnnTensor tensor_of(const Description& of) {
  DnnTensor tensor{.dtype = dtype_of(of.value<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE)),
                   .is_virtual = of.value<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL) != 0};
  const Ints shape = of.values<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  require(shape.size() == tensor.shape.size(), "a tensor has not four dimensions");
  std::ranges::copy(shape, tensor.shape.begin());
  const auto& [images, channels, height, width] = tensor.shape;
  const Ints dense{height * width * channels, 1, width * channels, channels};
  if (of.values<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES) != dense) {
    throw DnnFailure(CUDNN_STATUS_NOT_SUPPORTED_LAYOUT, "a tensor is not dense in N, H, W, C");
  }
  return tensor;
}

std::array<std::int64_t, 2> pair_of(const Ints& values) {
  require(values.size() == 2, "a convolution has not two spatial dimensions");
  return {values[0], values[1]};
}

class Builder {
 public:
  explicit Builder(const Description& of) {
    const auto& operations = of.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).parts;
    for (const auto& operation : operations) add(*operation);
    for (const bool known : known_) require(known, "a tensor's number is missing");
    try {
      check(graph_);
    } catch (const std::invalid_argument& error) {
      throw DnnFailure(CUDNN_STATUS_BAD_PARAM, error.what());
    }
  }
  DnnGraph take() { return std::move(graph_); }

 private:
  void add(const Description& of) {
    switch (of.type) {
      case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
        return add(DnnConvolution{
            .window = window_of(of.part(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC)),
            .x = id(of, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X),
            .w = id(of, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W),
            .y = id(of, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y),
            .beta = blend(of, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA)});
      case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
        return add(DnnConvolutionBackwardData{
            .window = window_of(of.part(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC)),
            .dy = id(of, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY),
            .w = id(of, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W),
            .dx = id(of, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX),
            .beta = blend(of, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA)});
      case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
        require(blend(of, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA) == 0,
                "a gradient of weights is added to");
        return add(DnnConvolutionBackwardFilter{
            .window = window_of(of.part(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC)),
            .x = id(of, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X),
            .dy = id(of, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY),
            .dw = id(of, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW)});
      case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        return add(pointwise_of(of));
      case CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR:
        return add(
            DnnGenerateStatistics{.x = id(of, CUDNN_ATTR_OPERATION_GENSTATS_XDESC),
                                  .sum = id(of, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC),
                                  .square_sum = id(of, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC)});
      case CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR:
        return add(DnnBatchNormBackwardWeights{
            .x = id(of, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC),
            .dy = id(of, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC),
            .mean = id(of, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC),
            .inverse_deviation = id(of, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC),
            .scale = id(of, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC),
            .dscale = id(of, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC),
            .dshift = id(of, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC),
            .dy_factor = id(of, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC),
            .x_factor = id(of, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC),
            .constant = id(of, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS)});
      default:
        throw DnnFailure(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN,
                         fmt::format("an operation of type {}", static_cast<int>(of.type)));
    }
  }
  void add(const DnnOperation& operation) { graph_.operations.push_back(operation); }

  DnnPointwise pointwise_of(const Description& of) {
    DnnPointwise op{.mode = mode_of(of.part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)
                                        .value<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE))};
    if (op.mode == PointwiseMode::relu_backward) {
      op.x = id(of, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC);
      op.b = id(of, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
      op.y = id(of, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC);
      return op;
    }
    op.x = id(of, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
    op.y = id(of, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    if (of.has(CUDNN_ATTR_OPERATION_POINTWISE_BDESC)) {
      op.b = id(of, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    }
    return op;
  }

  static DnnWindow window_of(const Description& of) {
    require(of.values<std::int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS) == Ints{1, 1},
            "a convolution is dilated");
    return {.stride = pair_of(of.values<std::int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES)),
            .before = pair_of(of.values<std::int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS)),
            .after = pair_of(of.values<std::int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS))};
  }
  static float blend(const Description& of, cudnnBackendAttributeName_t alpha,
                     cudnnBackendAttributeName_t beta) {
    require(of.value<float>(alpha) == 1, "a convolution is scaled");
    return of.value<float>(beta);
  }

  /// The graph's tensors are in the order of their numbers, which begin with 1.
  DnnTensorId id(const Description& of, cudnnBackendAttributeName_t name) {
    const Description& tensor = of.part(name);
    const auto number = tensor.value<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
    require(number >= 1 && number < 1000, "a tensor's number is not one that is given here");
    const auto index = static_cast<std::size_t>(number - 1);
    if (index >= graph_.tensors.size()) {
      graph_.tensors.resize(index + 1);
      known_.resize(index + 1);
    }
    const DnnTensor made = tensor_of(tensor);
    require(!known_[index] || graph_.tensors[index] == made, "two tensors have one number");
    graph_.tensors[index] = made;
    known_[index] = true;
    return static_cast<DnnTensorId>(index);
  }

  DnnGraph graph_;
  std::vector<bool> known_;
};

}  // namespace

const Description::Attribute& Description::at(cudnnBackendAttributeName_t name) const {
  const auto found = attributes.find(name);
  if (found != attributes.end()) return found->second;
  throw DnnFailure(CUDNN_STATUS_BAD_PARAM,
                   fmt::format("attribute {} of a descriptor of type {} is not set",
                               static_cast<int>(name), static_cast<int>(type)));
}

DnnGraph graph_of(const Description& operation_graph) { return Builder(operation_graph).take(); }

}  // namespace penstock::gpu::fake
