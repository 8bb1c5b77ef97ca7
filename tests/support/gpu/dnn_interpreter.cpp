// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gpu/dnn_interpreter.h"

#include <algorithm>
#include <cstring>

#include "dataflow/error.h"
#include "tests/support/gpu/dnn_convolutions.h"
#include "tests/support/gpu/rounding.h"

namespace penstock::gpu {
namespace {

float rounded(double value, DType dtype) {
  const auto single = static_cast<float>(value);
  if (dtype == DType::f16) return from_f16(to_f16(single));
  return dtype == DType::bf16 ? from_bf16(to_bf16(single)) : single;
}

std::vector<float> decode(const std::byte* memory, std::size_t count, DType dtype) {
  std::vector<float> values(count);
  if (dtype == DType::f32) {
    std::memcpy(values.data(), memory, count * sizeof(float));
    return values;
  }
  const auto* const bits = reinterpret_cast<const std::uint16_t*>(memory);
  std::transform(bits, bits + count, values.begin(), dtype == DType::f16 ? from_f16 : from_bf16);
  return values;
}

void encode(std::span<const float> values, DType dtype, std::byte* memory) {
  if (dtype == DType::f32) {
    std::memcpy(memory, values.data(), values.size_bytes());
    return;
  }
  std::transform(values.begin(), values.end(), reinterpret_cast<std::uint16_t*>(memory),
                 dtype == DType::f16 ? to_f16 : to_bf16);
}

class Interpreter {
 public:
  Interpreter(const DnnGraph& graph, std::span<std::byte* const> memory, F32Products products)
      : graph_(graph), memory_(memory), products_(products), virtual_(graph.tensors.size()) {}

  void compute(const DnnConvolution& op) {
    write_blended(op.y, op.beta,
                  convolve(shape_of(op.x, op.w, op.y, op.window), operand(op.x), operand(op.w)));
  }
  void compute(const DnnConvolutionBackwardData& op) {
    write_blended(op.dx, op.beta,
                  convolve_back_to_data(shape_of(op.dx, op.w, op.dy, op.window), operand(op.dy),
                                        operand(op.w)));
  }
  void compute(const DnnConvolutionBackwardFilter& op) {
    write(op.dw, convolve_back_to_filter(shape_of(op.x, op.dw, op.dy, op.window), operand(op.x),
                                         operand(op.dy)));
  }

  void compute(const DnnPointwise& op) {
    const std::vector<float> x = read(op.x);
    const std::vector<float> b = op.b == kNoTensor ? std::vector<float>(1) : read(op.b);
    std::vector<double> y(x.size());
    // Channels are innermost, so an operand with one value per channel repeats.
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = apply(op.mode, x[i], b[i % b.size()]);
    write(op.y, y);
  }

  void compute(const DnnGenerateStatistics& op) {
    const std::vector<float> x = read(op.x);
    const std::size_t channels = graph_.tensor(op.sum).count();
    std::vector<double> sum(channels), square_sum(channels);
    for (std::size_t i = 0; i < x.size(); ++i) {
      sum[i % channels] += x[i];
      square_sum[i % channels] += double{x[i]} * x[i];
    }
    write(op.sum, sum);
    write(op.square_sum, square_sum);
  }

  /// n = (x - mean) * inverse_deviation, dshift = sum of dy, dscale = sum of dy * n, and M is the
  /// number of values per channel. The gradient through batch norm and its statistics is
  ///   dx = scale * inverse_deviation * (dy - dshift / M - n * dscale / M).
  /// Its coefficients of dy, of x and the constant are
  ///   dy_factor = scale * inverse_deviation
  ///   x_factor = -dy_factor * inverse_deviation * dscale / M
  ///   constant = -dy_factor * dshift / M - x_factor * mean.
  void compute(const DnnBatchNormBackwardWeights& op) {
    const std::vector<float> x = read(op.x), dy = read(op.dy), mean = read(op.mean);
    const std::vector<float> inverse = read(op.inverse_deviation), scale = read(op.scale);
    const std::size_t channels = mean.size();
    const double elements = static_cast<double>(x.size() / channels);
    std::vector<double> dscale(channels), dshift(channels);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t c = i % channels;
      dshift[c] += dy[i];
      dscale[c] += dy[i] * ((double{x[i]} - mean[c]) * inverse[c]);
    }
    std::vector<double> dy_factor(channels), x_factor(channels), constant(channels);
    for (std::size_t c = 0; c < channels; ++c) {
      dy_factor[c] = double{scale[c]} * inverse[c];
      x_factor[c] = -dy_factor[c] * inverse[c] * dscale[c] / elements;
      constant[c] = -dy_factor[c] * dshift[c] / elements - x_factor[c] * mean[c];
    }
    write(op.dscale, dscale);
    write(op.dshift, dshift);
    write(op.dy_factor, dy_factor);
    write(op.x_factor, x_factor);
    write(op.constant, constant);
  }

 private:
  static double apply(PointwiseMode mode, double x, double b) {
    switch (mode) {
      case PointwiseMode::add:
        return x + b;
      case PointwiseMode::subtract:
        return x - b;
      case PointwiseMode::multiply:
        return x * b;
      case PointwiseMode::relu:
        return x < 0 ? 0 : x;  // NaN stays NaN
      case PointwiseMode::relu_backward:
        break;
    }
    return b > 0 ? x : 0;
  }

  ConvolutionSizes shape_of(DnnTensorId x, DnnTensorId w, DnnTensorId y,
                            const DnnWindow& window) const {
    return {graph_.tensor(x), graph_.tensor(w), graph_.tensor(y), window};
  }
  static std::size_t index(DnnTensorId id) { return static_cast<std::size_t>(id); }

  std::vector<float> read(DnnTensorId id) const {
    const DnnTensor& tensor = graph_.tensor(id);
    return tensor.is_virtual ? virtual_[index(id)]
                             : decode(memory_[index(id)], tensor.count(), tensor.dtype);
  }
  /// An operand of a convolution.
  std::vector<float> operand(DnnTensorId id) const {
    std::vector<float> values = read(id);
    if (products_ == F32Products::tf32 && graph_.tensor(id).dtype == DType::f32) {
      std::transform(values.begin(), values.end(), values.begin(), round_to_tf32);
    }
    return values;
  }

  void write(DnnTensorId id, std::span<const double> values) {
    const DnnTensor& tensor = graph_.tensor(id);
    PENSTOCK_ASSERT(values.size() == tensor.count());
    std::vector<float> narrow(values.size());
    std::transform(values.begin(), values.end(), narrow.begin(),
                   [&](double value) { return rounded(value, tensor.dtype); });
    if (tensor.is_virtual) {
      virtual_[index(id)] = std::move(narrow);
    } else {
      encode(narrow, tensor.dtype, memory_[index(id)]);
    }
  }
  void write_blended(DnnTensorId id, float beta, std::vector<double> values) {
    if (beta != 0) {
      const std::vector<float> before = read(id);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] += double{beta} * before[i];
    }
    write(id, values);
  }

  const DnnGraph& graph_;
  std::span<std::byte* const> memory_;
  F32Products products_;
  std::vector<std::vector<float>> virtual_;
};

}  // namespace

void interpret(const DnnGraph& graph, std::span<std::byte* const> tensors, F32Products products) {
  PENSTOCK_ASSERT(tensors.size() == graph.tensors.size());
  Interpreter interpreter(graph, tensors, products);
  for (const DnnOperation& operation : graph.operations) {
    std::visit([&](const auto& op) { interpreter.compute(op); }, operation);
  }
}

}  // namespace penstock::gpu
