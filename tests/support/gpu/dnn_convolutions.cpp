// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gpu/dnn_convolutions.h"

#include <algorithm>
#include <array>

namespace penstock::gpu {
namespace {

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

}  // namespace

ConvolutionSizes::ConvolutionSizes(const DnnTensor& x, const DnnTensor& w, const DnnTensor& y,
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

}  // namespace penstock::gpu
