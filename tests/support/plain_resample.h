// SPDX-License-Identifier: Apache-2.0
// The antialiased triangle filter written down as its definition, in double and without haste: the
// oracle of resampling tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "dataflow/resample.h"
#include "tests/support/jpeg_writer.h"

namespace penstock {

/// Value of one output pixel along one axis; `value(x)` is that of source pixel x.
template <typename Value>
double filtered(const Stretch& stretch, int outputs, int output, Value value) {
  const double scale = stretch.length / outputs;
  const double support = std::max(1.0, scale);
  const double centre = stretch.begin + (output + 0.5) * scale;
  double sum = 0, weights = 0;
  const int first = std::max(stretch.low, static_cast<int>(centre - support) - 1);
  const int end = std::min(stretch.high, static_cast<int>(centre + support) + 2);
  for (int x = first; x < end; ++x) {
    const double weight = std::max(0.0, 1 - std::abs(x + 0.5 - centre) / support);
    if (weight <= 0) continue;
    sum += weight * value(x);
    weights += weight;
  }
  return sum / weights;
}

/// [height][width][3] in double.
inline std::vector<double> plain_resample(const TestImage& image, const Stretch& columns,
                                          const Stretch& rows, bool mirrored, int width,
                                          int height) {
  const auto at = [](int x, int y, int stride, int c) {
    return (static_cast<std::size_t>(y) * stride + x) * 3 + c;
  };
  std::vector<double> wide(static_cast<std::size_t>(width) * image.height * 3);
  for (int y = rows.low; y < rows.high; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < 3; ++c) {
        wide[at(x, y, width, c)] = filtered(columns, width, mirrored ? width - 1 - x : x,
                                            [&](int sx) { return image.at(sx, y)[c]; });
      }
    }
  }
  std::vector<double> result(static_cast<std::size_t>(width) * height * 3);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < 3; ++c) {
        result[at(x, y, width, c)] =
            filtered(rows, height, y, [&](int sy) { return wide[at(x, sy, width, c)]; });
      }
    }
  }
  return result;
}

/// Largest difference between 8-bit pixels and their exact values.
inline double max_difference(const std::vector<std::byte>& pixels,
                             const std::vector<double>& exact) {
  double worst = pixels.size() == exact.size() ? 0 : 1e9;
  for (std::size_t i = 0; i < std::min(pixels.size(), exact.size()); ++i) {
    worst = std::max(worst, std::abs(std::to_integer<int>(pixels[i]) - exact[i]));
  }
  return worst;
}

}  // namespace penstock
