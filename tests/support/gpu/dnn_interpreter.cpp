// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gpu/dnn_interpreter.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "dataflow/error.h"
#include "trainer/backends/gpu/kernels/select.h"

namespace penstock::gpu {
namespace {

float rounded(double value, DType dtype) {
  auto single = static_cast<float>(value);
  with_type(dtype, [&]<class T>(T) { single = to_float(from_float<T>(single)); });
  return single;
}

std::vector<float> decode(const std::byte* memory, std::size_t count, DType dtype) {
  std::vector<float> values(count);
  with_type(dtype, [&]<class T>(T) {
    const auto* const from = reinterpret_cast<const T*>(memory);
    std::transform(from, from + count, values.begin(), [](T value) { return to_float(value); });
  });
  return values;
}

void encode(std::span<const float> values, DType dtype, std::byte* memory) {
  with_type(dtype, [&]<class T>(T) {
    std::ranges::transform(values, reinterpret_cast<T*>(memory), from_float<T>);
  });
}

/// Keeps f32's range and ten fraction bits, as matrix units round f32 operands.
float round_to_tf32(float value) {
  const std::uint32_t bits = bits_of_float(value);
  if ((bits & 0x7F800000U) == 0x7F800000U) return value;
  return float_of_bits((bits + 0xFFFU + (bits >> 13U & 1U)) & ~0x1FFFU);
}

// Convolutions and their gradients in plain loops over [N, H, W, C], with sums in double. They are
// fast enough to run whole networks on small images in seconds: inner loops run over neighbouring
// channels, and large weights are read once per tile of pixels.

struct ConvolutionSizes {
  std::int64_t images = 0, height = 0, width = 0, channels = 0;  ///< of x
  std::int64_t out_height = 0, out_width = 0, out_channels = 0;  ///< of y
  std::int64_t kernel_height = 0, kernel_width = 0, group_channels = 0;
  DnnWindow window{};

  ConvolutionSizes(const DnnTensor& x, const DnnTensor& w, const DnnTensor& y,
                   const DnnWindow& around)
      : images(x.shape[0]),
        height(x.shape[2]),
        width(x.shape[3]),
        channels(x.shape[1]),
        out_height(y.shape[2]),
        out_width(y.shape[3]),
        out_channels(y.shape[1]),
        kernel_height(w.shape[2]),
        kernel_width(w.shape[3]),
        group_channels(w.shape[1]),
        window(around) {}
};

constexpr std::size_t kTile = 16;
/// The index of a pixel outside of the image.
constexpr std::ptrdiff_t kOutside = -1;

std::size_t size(std::int64_t value) { return static_cast<std::size_t>(value); }

template <typename From>
void add_scaled(double factor, const From* from, double* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] += factor * static_cast<double>(from[i]);
}

/// Index of x's pixel under place (r, s) of the window of output pixel `out`, or kOutside.
std::ptrdiff_t pixel_under(const ConvolutionSizes& shape, std::int64_t out, std::int64_t r,
                           std::int64_t s) {
  const std::int64_t q = out % shape.out_width, p = out / shape.out_width % shape.out_height;
  const std::int64_t n = out / shape.out_width / shape.out_height;
  const std::int64_t h = p * shape.window.stride[0] + r - shape.window.before[0];
  const std::int64_t w = q * shape.window.stride[1] + s - shape.window.before[1];
  if (h < 0 || h >= shape.height || w < 0 || w >= shape.width) return kOutside;
  return (n * shape.height + h) * shape.width + w;
}

std::int64_t out_pixels(const ConvolutionSizes& shape) {
  return shape.images * shape.out_height * shape.out_width;
}
std::int64_t groups(const ConvolutionSizes& shape) { return shape.channels / shape.group_channels; }

/// Output pixels [first, first + count), and x's pixels under one place of their windows.
struct Tile {
  std::int64_t first = 0;
  std::size_t count = 0;
  std::array<std::ptrdiff_t, kTile> under{};
};

/// Calls visit(tile, r, s) for all places of the windows of all tiles of outputs.
template <typename Visit>
void for_each_tile(const ConvolutionSizes& shape, const Visit& visit) {
  const std::int64_t pixels = out_pixels(shape);
  for (std::int64_t first = 0; first < pixels; first += static_cast<std::int64_t>(kTile)) {
    Tile tile{.first = first, .count = std::min(kTile, size(pixels - first))};
    for (std::int64_t r = 0; r < shape.kernel_height; ++r) {
      for (std::int64_t s = 0; s < shape.kernel_width; ++s) {
        for (std::size_t t = 0; t < tile.count; ++t) {
          tile.under[t] = pixel_under(shape, first + static_cast<std::int64_t>(t), r, s);
        }
        visit(tile, r, s);
      }
    }
  }
}

/// From [K, R, S, C / groups] to [R, S, groups, C / groups, K / groups].
std::vector<double> outputs_innermost(const ConvolutionSizes& shape, std::span<const float> w) {
  const std::size_t inner = size(shape.group_channels);
  const std::size_t outer = size(shape.out_channels / groups(shape));
  const std::size_t places = size(shape.kernel_height * shape.kernel_width);
  std::vector<double> turned(w.size());
  for (std::size_t k = 0; k < size(shape.out_channels); ++k) {
    for (std::size_t place = 0; place < places; ++place) {
      const std::size_t matrix = (place * size(groups(shape)) + k / outer) * inner;
      for (std::size_t c = 0; c < inner; ++c) {
        turned[(matrix + c) * outer + k % outer] = w[(k * places + place) * inner + c];
      }
    }
  }
  return turned;
}

/// x * w.
std::vector<double> convolve(const ConvolutionSizes& shape, std::span<const float> x,
                             std::span<const float> w) {
  const std::vector<double> turned = outputs_innermost(shape, w);
  const std::size_t inner = size(shape.group_channels), channels = size(shape.channels);
  const std::size_t outputs = size(shape.out_channels), outer = outputs / (channels / inner);
  std::vector<double> y(size(out_pixels(shape)) * outputs);
  for_each_tile(shape, [&](const Tile& tile, std::int64_t r, std::int64_t s) {
    const double* matrix = turned.data() + size(r * shape.kernel_width + s) * channels * outer;
    for (std::size_t c = 0; c < channels; ++c, matrix += outer) {
      for (std::size_t t = 0; t < tile.count; ++t) {
        if (tile.under[t] == kOutside) continue;
        add_scaled(x[size(tile.under[t]) * channels + c], matrix,
                   y.data() + (size(tile.first) + t) * outputs + c / inner * outer, outer);
      }
    }
  });
  return y;
}

/// The gradient of x.
std::vector<double> convolve_back_to_data(const ConvolutionSizes& shape, std::span<const float> dy,
                                          std::span<const float> w) {
  const std::size_t inner = size(shape.group_channels), channels = size(shape.channels);
  const std::size_t outputs = size(shape.out_channels), outer = outputs / (channels / inner);
  const std::size_t places = size(shape.kernel_height * shape.kernel_width);
  std::vector<double> dx(size(shape.images * shape.height * shape.width) * channels);
  for_each_tile(shape, [&](const Tile& tile, std::int64_t r, std::int64_t s) {
    const std::size_t place = size(r * shape.kernel_width + s);
    for (std::size_t k = 0; k < outputs; ++k) {
      const float* const row = w.data() + (k * places + place) * inner;
      for (std::size_t t = 0; t < tile.count; ++t) {
        if (tile.under[t] == kOutside) continue;
        add_scaled(dy[(size(tile.first) + t) * outputs + k], row,
                   dx.data() + size(tile.under[t]) * channels + k / outer * inner, inner);
      }
    }
  });
  return dx;
}

/// The gradient of w.
std::vector<double> convolve_back_to_filter(const ConvolutionSizes& shape, std::span<const float> x,
                                            std::span<const float> dy) {
  const std::size_t inner = size(shape.group_channels), channels = size(shape.channels);
  const std::size_t outputs = size(shape.out_channels), outer = outputs / (channels / inner);
  const std::size_t places = size(shape.kernel_height * shape.kernel_width);
  std::vector<double> dw(outputs * places * inner);
  for (std::int64_t place = 0; place < static_cast<std::int64_t>(places); ++place) {
    std::vector<std::ptrdiff_t> under(size(out_pixels(shape)));
    for (std::size_t out = 0; out < under.size(); ++out) {
      under[out] = pixel_under(shape, static_cast<std::int64_t>(out), place / shape.kernel_width,
                               place % shape.kernel_width);
    }
    for (std::size_t k = 0; k < outputs; ++k) {
      double* const row = dw.data() + (k * places + size(place)) * inner;
      for (std::size_t out = 0; out < under.size(); ++out) {
        if (under[out] == kOutside) continue;
        add_scaled(dy[out * outputs + k],
                   x.data() + size(under[out]) * channels + k / outer * inner, row, inner);
      }
    }
  }
  return dw;
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
