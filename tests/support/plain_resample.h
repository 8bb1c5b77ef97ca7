// SPDX-License-Identifier: Apache-2.0
// The resize methods written from their definitions, in double and without optimisation: the
// reference for resampling tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "dataflow/images/resample.h"
#include "tests/support/jpeg_writer.h"

namespace penstock {

/// A method by its definition: the places of outputs, the width of the kernel, and its edges.
struct PlainFilter {
  bool corners = false;  ///< output i is at i * scale of source pixels' indices, not at centres
  bool widens = false;   ///< by the scale, if the scale is above one
  bool repeats = false;  ///< the last pixel repeats beyond the edge; false: those are left out
  double radius = 1;     ///< of the kernel; 0: the nearest pixel
  double (*kernel)(double distance) = nullptr;  ///< null: the overlap of areas
};

inline double plain_triangle(double d) { return std::abs(d) < 1 ? 1 - std::abs(d) : 0; }
inline double plain_cubic(double a, double d) {
  const double x = std::abs(d);
  if (x < 1) return (a + 2) * std::pow(x, 3) - (a + 3) * std::pow(x, 2) + 1;
  return x < 2 ? a * std::pow(x, 3) - 5 * a * std::pow(x, 2) + 8 * a * x - 4 * a : 0;
}
inline double plain_soft_cubic(double d) { return plain_cubic(-0.5, d); }
inline double plain_steep_cubic(double d) { return plain_cubic(-0.75, d); }

inline PlainFilter plain_filter(Filter filter) {
  switch (filter) {
    case Filter::bilinear:
      return {.widens = true, .kernel = plain_triangle};
    case Filter::bicubic:
      return {.widens = true, .radius = 2, .kernel = plain_soft_cubic};
    case Filter::area:
      return {};
    case Filter::nearest:
      return {.radius = 0};
    case Filter::tf_nearest:
      return {.corners = true, .radius = 0};
    case Filter::tf_bilinear:
      return {.corners = true, .repeats = true, .kernel = plain_triangle};
    case Filter::tf_bicubic:
      return {.corners = true, .repeats = true, .radius = 2, .kernel = plain_steep_cubic};
    case Filter::cv_bilinear:
      return {.repeats = true, .kernel = plain_triangle};
    case Filter::cv_bicubic:
      return {.repeats = true, .radius = 2, .kernel = plain_steep_cubic};
  }
  return {};
}

/// The value of one output pixel along one axis; `value(x)` is the value of source pixel x.
template <typename Value>
double filtered(const Stretch& stretch, int outputs, int output, const PlainFilter& filter,
                Value value) {
  const double scale = stretch.length / outputs;
  const auto readable = [&](int x) { return std::clamp(x, stretch.low, stretch.high - 1); };
  // As an index of source pixels: pixel x has its centre at x.
  const double place = filter.corners ? stretch.begin + output * scale
                                      : stretch.begin + (output + 0.5) * scale - 0.5;
  if (filter.radius == 0) {
    return value(readable(static_cast<int>(std::floor(place + (filter.corners ? 0 : 0.5)))));
  }
  if (filter.kernel == nullptr) {
    double sum = 0;
    const double from = stretch.begin + output * scale, to = from + scale;
    for (int x = stretch.low; x < stretch.high; ++x) {
      sum += std::max(0.0, std::min(to, x + 1.0) - std::max(from, double(x))) * value(x);
    }
    return sum / scale;
  }
  const double width = filter.widens ? std::max(1.0, scale) : 1;
  const double reach = filter.radius * width;
  double sum = 0, weights = 0;
  for (int x = static_cast<int>(place - reach) - 2; x <= static_cast<int>(place + reach) + 2; ++x) {
    const double weight = filter.kernel((x - place) / width);
    if (!filter.repeats && x != readable(x)) continue;
    sum += weight * value(readable(x));
    weights += weight;
  }
  return sum / weights;
}

/// [height][width][3] in double; neither rounded nor clamped.
inline std::vector<double> plain_resample(const TestImage& image, const Stretch& columns,
                                          const Stretch& rows, bool mirrored, int width, int height,
                                          Filter name = Filter::bilinear) {
  const PlainFilter filter = plain_filter(name);
  // If places are not symmetric, images must be mirrored before they are resized.
  const bool before = mirrored && filter.corners, after = mirrored && !filter.corners;
  Stretch along = columns;
  if (before) {
    along.begin = image.width - columns.begin - columns.length;
    along.low = image.width - columns.high;
    along.high = image.width - columns.low;
  }
  const auto at = [](int x, int y, int stride, int c) {
    return (static_cast<std::size_t>(y) * stride + x) * 3 + c;
  };
  std::vector<double> wide(static_cast<std::size_t>(width) * image.height * 3);
  for (int y = rows.low; y < rows.high; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < 3; ++c) {
        wide[at(x, y, width, c)] =
            filtered(along, width, after ? width - 1 - x : x, filter,
                     [&](int sx) { return image.at(before ? image.width - 1 - sx : sx, y)[c]; });
      }
    }
  }
  std::vector<double> result(static_cast<std::size_t>(width) * height * 3);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < 3; ++c) {
        result[at(x, y, width, c)] =
            filtered(rows, height, y, filter, [&](int sy) { return wide[at(x, sy, width, c)]; });
      }
    }
  }
  return result;
}

/// Largest difference between 8-bit pixels and their exact values, clamped to the range of pixels.
inline double max_difference(const std::vector<std::byte>& pixels,
                             const std::vector<double>& exact) {
  double worst = pixels.size() == exact.size() ? 0 : 1e9;
  for (std::size_t i = 0; i < std::min(pixels.size(), exact.size()); ++i) {
    worst = std::max(worst,
                     std::abs(std::to_integer<int>(pixels[i]) - std::clamp(exact[i], 0.0, 255.0)));
  }
  return worst;
}

}  // namespace penstock
