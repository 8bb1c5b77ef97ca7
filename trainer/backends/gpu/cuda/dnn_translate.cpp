// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/cuda/dnn_translate.h"

#include <array>
#include <span>
#include <utility>

namespace penstock::gpu {
namespace {

constexpr std::int64_t kAlignment = 16;  // bytes; the arenas are aligned to more

cudnnDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::u8:
      return CUDNN_DATA_UINT8;
    case DType::i32:
      return CUDNN_DATA_INT32;
    case DType::f16:
      return CUDNN_DATA_HALF;
    case DType::bf16:
      return CUDNN_DATA_BFLOAT16;
    case DType::f32:
      return CUDNN_DATA_FLOAT;
  }
  return CUDNN_DATA_FLOAT;
}

cudnnPointwiseMode_t pointwise_mode(PointwiseMode mode) {
  switch (mode) {
    case PointwiseMode::add:
      return CUDNN_POINTWISE_ADD;
    case PointwiseMode::subtract:
      return CUDNN_POINTWISE_SUB;
    case PointwiseMode::multiply:
      return CUDNN_POINTWISE_MUL;
    case PointwiseMode::relu:
      return CUDNN_POINTWISE_RELU_FWD;
    case PointwiseMode::relu_backward:
      return CUDNN_POINTWISE_RELU_BWD;
  }
  return CUDNN_POINTWISE_ADD;
}

Descriptor make_tensor(const DnnTensor& tensor, std::int64_t id) {
  const auto& [images, channels, height, width] = tensor.shape;
  const std::array<std::int64_t, 4> strides{height * width * channels, 1, width * channels,
                                            channels};
  Descriptor descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  descriptor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, data_type(tensor.dtype));
  descriptor.set_integers(CUDNN_ATTR_TENSOR_DIMENSIONS, tensor.shape);
  descriptor.set_integers(CUDNN_ATTR_TENSOR_STRIDES, strides);
  descriptor.set_integer(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  descriptor.set_integer(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kAlignment);
  descriptor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, tensor.is_virtual);
  descriptor.finalize("tensor");
  return descriptor;
}

Descriptor make_window(const DnnWindow& window) {
  constexpr std::array<std::int64_t, 2> kDilations{1, 1};
  Descriptor descriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  descriptor.set_integer(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 2);
  descriptor.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  descriptor.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
                 CUDNN_CROSS_CORRELATION);
  descriptor.set_integers(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, window.before);
  descriptor.set_integers(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, window.after);
  descriptor.set_integers(CUDNN_ATTR_CONVOLUTION_DILATIONS, kDilations);
  descriptor.set_integers(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, window.stride);
  descriptor.finalize("convolution");
  return descriptor;
}

Descriptor make_pointwise(PointwiseMode mode) {
  Descriptor descriptor(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  descriptor.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, pointwise_mode(mode));
  descriptor.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  descriptor.finalize("pointwise");
  return descriptor;
}

/// Makes the descriptor of each kind of operation; the descriptors of its settings go to
/// `settings`.
struct Translator {
  const std::vector<Descriptor>& tensors;
  std::vector<Descriptor>& settings;

  using Operand = std::pair<cudnnBackendAttributeName_t, DnnTensorId>;
  void set_operands(Descriptor& operation, std::span<const Operand> operands) const {
    for (const auto& [name, id] : operands) {
      operation.set_descriptor(name, tensors[static_cast<std::size_t>(id)]);
    }
  }

  Descriptor operator()(const DnnConvolution& op) const {
    Descriptor operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    operation.set_descriptor(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                             settings.emplace_back(make_window(op.window)));
    set_operands(operation,
                 std::array<Operand, 3>{{{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, op.x},
                                         {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, op.w},
                                         {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, op.y}}});
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1.0F);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, op.beta);
    operation.finalize("forward convolution");
    return operation;
  }

  Descriptor operator()(const DnnConvolutionBackwardData& op) const {
    Descriptor operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR);
    operation.set_descriptor(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                             settings.emplace_back(make_window(op.window)));
    set_operands(operation,
                 std::array<Operand, 3>{{{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, op.dy},
                                         {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, op.w},
                                         {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, op.dx}}});
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_TYPE_FLOAT, 1.0F);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_TYPE_FLOAT, op.beta);
    operation.finalize("convolution's gradient of data");
    return operation;
  }

  Descriptor operator()(const DnnConvolutionBackwardFilter& op) const {
    Descriptor operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR);
    operation.set_descriptor(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                             settings.emplace_back(make_window(op.window)));
    set_operands(operation,
                 std::array<Operand, 3>{{{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, op.x},
                                         {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, op.dy},
                                         {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, op.dw}}});
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_TYPE_FLOAT, 1.0F);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, CUDNN_TYPE_FLOAT, 0.0F);
    operation.finalize("convolution's gradient of weights");
    return operation;
  }

  Descriptor operator()(const DnnPointwise& op) const {
    Descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set_descriptor(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
                             settings.emplace_back(make_pointwise(op.mode)));
    if (op.mode == PointwiseMode::relu_backward) {
      set_operands(operation,
                   std::array<Operand, 3>{{{CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, op.x},
                                           {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, op.b},
                                           {CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, op.y}}});
    } else {
      set_operands(operation,
                   std::array<Operand, 2>{{{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, op.x},
                                           {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, op.y}}});
      if (op.b != kNoTensor) {
        set_operands(operation,
                     std::array<Operand, 1>{{{CUDNN_ATTR_OPERATION_POINTWISE_BDESC, op.b}}});
      }
    }
    operation.finalize("pointwise operation");
    return operation;
  }

  Descriptor operator()(const DnnGenerateStatistics& op) const {
    Descriptor operation(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE,
                  CUDNN_GENSTATS_SUM_SQSUM);
    operation.set(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    set_operands(operation, std::array<Operand, 3>{
                                {{CUDNN_ATTR_OPERATION_GENSTATS_XDESC, op.x},
                                 {CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, op.sum},
                                 {CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, op.square_sum}}});
    operation.finalize("sums of statistics");
    return operation;
  }

  Descriptor operator()(const DnnBatchNormBackwardWeights& op) const {
    Descriptor operation(CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
                  CUDNN_DATA_FLOAT);
    set_operands(operation,
                 std::array<Operand, 10>{
                     {{CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC, op.x},
                      {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC, op.dy},
                      {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC, op.mean},
                      {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC, op.inverse_deviation},
                      {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC, op.scale},
                      {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC, op.dscale},
                      {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC, op.dshift},
                      {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC, op.dy_factor},
                      {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC, op.x_factor},
                      {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS, op.constant}}});
    operation.finalize("batch norm's gradient of weights");
    return operation;
  }
};

}  // namespace

OperationGraph::OperationGraph(const DnnGraph& graph, cudnnHandle_t handle)
    : graph_(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const auto id = static_cast<DnnTensorId>(i);
    tensors_.push_back(make_tensor(graph.tensors[i], unique_id(id)));
    if (!graph.tensors[i].is_virtual) in_memory_.push_back(id);
  }
  const Translator translator{tensors_, settings_};
  for (const DnnOperation& operation : graph.operations) {
    operations_.push_back(std::visit(translator, operation));
  }
  graph_.set_descriptors(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations_);
  if (handle != nullptr) graph_.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
  graph_.finalize("operation graph");
}

}  // namespace penstock::gpu
