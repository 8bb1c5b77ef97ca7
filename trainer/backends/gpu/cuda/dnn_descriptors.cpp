// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/cuda/dnn_descriptors.h"

#include <fmt/format.h>

#include <array>
#include <initializer_list>
#include <utility>

#include "dataflow/error.h"

namespace penstock::gpu {

void check_dnn(cudnnStatus_t status, std::string_view call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::array<char, 2048> text{};
  cudnnGetLastErrorString(text.data(), text.size());
  throw DeviceError("cuDNN {}: {} failed with {}{}{}", dnn_version_text(), call,
                    cudnnGetErrorString(status), text[0] == '\0' ? "" : ": ", text.data());
}

std::string dnn_version_text() {
  const std::size_t version = cudnnGetVersion();  // major * 10000 + minor * 100 + patch
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t made = nullptr;
  check_dnn(cudnnBackendCreateDescriptor(type, &made),
            fmt::format("cudnnBackendCreateDescriptor(type {})", static_cast<int>(type)));
  descriptor_.reset(made);
}

void Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                     std::int64_t count, const void* values) {
  check_dnn(cudnnBackendSetAttribute(get(), name, type, count, values),
            fmt::format("cudnnBackendSetAttribute(attribute {}, {} of type {})",
                        static_cast<int>(name), count, static_cast<int>(type)));
}

void Descriptor::set_integers(cudnnBackendAttributeName_t name,
                              std::span<const std::int64_t> values) {
  set(name, CUDNN_TYPE_INT64, static_cast<std::int64_t>(values.size()), values.data());
}

void Descriptor::set_integer(cudnnBackendAttributeName_t name, std::int64_t value) {
  set(name, CUDNN_TYPE_INT64, value);
}

void Descriptor::set_descriptor(cudnnBackendAttributeName_t name, const Descriptor& value) {
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, value.get());
}

void Descriptor::set_descriptors(cudnnBackendAttributeName_t name,
                                 std::span<const Descriptor> values) {
  std::vector<cudnnBackendDescriptor_t> handles;
  for (const Descriptor& value : values) handles.push_back(value.get());
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<std::int64_t>(handles.size()),
      handles.data());
}

void Descriptor::set_text(cudnnBackendAttributeName_t name, std::string_view text) {
  set(name, CUDNN_TYPE_CHAR, static_cast<std::int64_t>(text.size()), text.data());
}

std::int64_t Descriptor::read(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                              std::int64_t most, void* values) const {
  std::int64_t count = 0;
  check_dnn(cudnnBackendGetAttribute(get(), name, type, most, &count, values),
            fmt::format("cudnnBackendGetAttribute(attribute {}, at most {} of type {})",
                        static_cast<int>(name), most, static_cast<int>(type)));
  return count < most ? count : most;
}

std::int64_t Descriptor::integer(cudnnBackendAttributeName_t name) const {
  std::int64_t value = 0;
  read(name, CUDNN_TYPE_INT64, 1, &value);
  return value;
}

std::int64_t Descriptor::count(cudnnBackendAttributeName_t name,
                               cudnnBackendAttributeType_t type) const {
  std::int64_t count = 0;
  check_dnn(cudnnBackendGetAttribute(get(), name, type, 0, &count, nullptr),
            fmt::format("cudnnBackendGetAttribute(attribute {}, how many of type {})",
                        static_cast<int>(name), static_cast<int>(type)));
  return count;
}

std::string Descriptor::text(cudnnBackendAttributeName_t name) const {
  const std::int64_t size = count(name, CUDNN_TYPE_CHAR);
  std::string text(static_cast<std::size_t>(size), '\0');
  text.resize(static_cast<std::size_t>(read(name, CUDNN_TYPE_CHAR, size, text.data())));
  while (!text.empty() && text.back() == '\0') text.pop_back();
  return text;
}

Descriptor Descriptor::descriptor(cudnnBackendAttributeName_t name,
                                  cudnnBackendDescriptorType_t type) const {
  Descriptor result(type);
  cudnnBackendDescriptor_t handle = result.get();
  read(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &handle);
  return result;
}

std::vector<Descriptor> Descriptor::descriptors(cudnnBackendAttributeName_t name,
                                                cudnnBackendDescriptorType_t type,
                                                std::int64_t most) const {
  std::vector<Descriptor> results;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (std::int64_t i = 0; i < most; ++i) {
    handles.push_back(results.emplace_back(type).get());
  }
  const std::int64_t count = read(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, handles.data());
  while (static_cast<std::int64_t>(results.size()) > count) results.pop_back();
  return results;
}

void Descriptor::finalize(std::string_view what) {
  check_dnn(try_finalize(), fmt::format("cudnnBackendFinalize({})", what));
}

cudnnStatus_t Descriptor::try_finalize() noexcept { return cudnnBackendFinalize(get()); }

// ---- a graph in the library's descriptors -----------------------------------

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
  void set_operands(Descriptor& operation, std::initializer_list<Operand> operands) const {
    for (const auto& [name, id] : operands) {
      operation.set_descriptor(name, tensors[static_cast<std::size_t>(id)]);
    }
  }

  Descriptor operator()(const DnnConvolution& op) const {
    Descriptor operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    operation.set_descriptor(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                             settings.emplace_back(make_window(op.window)));
    set_operands(operation, {{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, op.x},
                             {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, op.w},
                             {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, op.y}});
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1.0F);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, op.beta);
    operation.finalize("forward convolution");
    return operation;
  }

  Descriptor operator()(const DnnConvolutionBackwardData& op) const {
    Descriptor operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR);
    operation.set_descriptor(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                             settings.emplace_back(make_window(op.window)));
    set_operands(operation, {{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, op.dy},
                             {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, op.w},
                             {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, op.dx}});
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_TYPE_FLOAT, 1.0F);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_TYPE_FLOAT, op.beta);
    operation.finalize("convolution's gradient of data");
    return operation;
  }

  Descriptor operator()(const DnnConvolutionBackwardFilter& op) const {
    Descriptor operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR);
    operation.set_descriptor(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                             settings.emplace_back(make_window(op.window)));
    set_operands(operation, {{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, op.x},
                             {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, op.dy},
                             {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, op.dw}});
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
      set_operands(operation, {{CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, op.x},
                               {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, op.b},
                               {CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, op.y}});
    } else {
      set_operands(operation, {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, op.x},
                               {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, op.y}});
      if (op.b != kNoTensor) {
        set_operands(operation, {{CUDNN_ATTR_OPERATION_POINTWISE_BDESC, op.b}});
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
    set_operands(operation, {{CUDNN_ATTR_OPERATION_GENSTATS_XDESC, op.x},
                             {CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, op.sum},
                             {CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, op.square_sum}});
    operation.finalize("sums of statistics");
    return operation;
  }

  Descriptor operator()(const DnnBatchNormBackwardWeights& op) const {
    Descriptor operation(CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
                  CUDNN_DATA_FLOAT);
    set_operands(operation,
                 {{CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC, op.x},
                  {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC, op.dy},
                  {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC, op.mean},
                  {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC, op.inverse_deviation},
                  {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC, op.scale},
                  {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC, op.dscale},
                  {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC, op.dshift},
                  {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC, op.dy_factor},
                  {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC, op.x_factor},
                  {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS, op.constant}});
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
