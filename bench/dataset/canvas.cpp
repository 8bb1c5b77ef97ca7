// SPDX-License-Identifier: Apache-2.0
#include "bench/dataset/canvas.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace penstock::dataset {
namespace {

/// A grid of noise whose resolution doubles by quadratic B-spline subdivision.
struct Grid {
  Grid(std::int32_t width_, std::int32_t height_)
      : width(width_),
        height(height_),
        values(static_cast<std::size_t>(width_) * static_cast<std::size_t>(height_)) {}
  float* row(std::int32_t y) { return values.data() + static_cast<std::ptrdiff_t>(y) * width; }

  std::int32_t width, height;
  std::vector<float> values;
};

void add_noise(Grid& grid, float amplitude, Random& random) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < grid.values.size(); ++i) {
    if (i % 8 == 0) word = random.bits();
    const auto byte = static_cast<float>((word >> (8 * (i % 8))) & 0xffU);
    grid.values[i] += amplitude * (byte * (2.0F / 255) - 1);
  }
}

Grid subdivide(Grid& coarse) {
  Grid fine(2 * (coarse.width - 1), 2 * (coarse.height - 1));
  std::vector<float> blended(static_cast<std::size_t>(coarse.width));
  for (std::int32_t y = 0; y < fine.height; ++y) {
    const float* const upper = coarse.row(y / 2);
    const float* const lower = coarse.row(y / 2 + 1);
    const float weight = y % 2 == 0 ? 0.75F : 0.25F;
    for (std::int32_t x = 0; x < coarse.width; ++x) {
      blended[static_cast<std::size_t>(x)] = weight * upper[x] + (1 - weight) * lower[x];
    }
    float* const out = fine.row(y);
    for (std::size_t x = 0; x + 1 < blended.size(); ++x) {
      const float left = blended[x], right = blended[x + 1];
      out[2 * x] = 0.75F * left + 0.25F * right;
      out[2 * x + 1] = 0.25F * left + 0.75F * right;
    }
  }
  return fine;
}

void standardise(std::span<float> values) {
  double sum = 0, squares = 0;
  for (const float value : values) {
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  const auto count = static_cast<double>(values.size());
  const double mean = sum / count;
  const double deviation = std::sqrt(std::max(squares / count - mean * mean, 1e-12));
  const auto shift = static_cast<float>(mean), scale = static_cast<float>(1 / deviation);
  for (float& value : values) value = (value - shift) * scale;
}

}  // namespace

Canvas::Canvas(std::int32_t width_, std::int32_t height_)
    : width(width_),
      height(height_),
      rgb(static_cast<std::size_t>(width_) * static_cast<std::size_t>(height_)) {}

std::vector<float> fractal_field(const Canvas& canvas, float gain, Random& random,
                                 std::int32_t octaves) {
  std::int32_t fitting = 0;
  while ((std::min(canvas.width, canvas.height) >> fitting) > 3) ++fitting;
  octaves = octaves > 0 ? std::min(octaves, fitting) : fitting;
  const auto cells = [&](std::int32_t pixels) {
    return ((pixels + (1 << octaves) - 1) >> octaves) + 2;
  };
  Grid grid(cells(canvas.width), cells(canvas.height));
  float amplitude = 1;
  add_noise(grid, amplitude, random);
  for (std::int32_t octave = 0; octave < octaves; ++octave) {
    grid = subdivide(grid);
    amplitude *= gain;
    add_noise(grid, amplitude, random);
  }
  std::vector<float> field(canvas.pixels());
  for (std::int32_t y = 0; y < canvas.height; ++y) {
    std::copy_n(grid.row(y), canvas.width,
                field.begin() + static_cast<std::ptrdiff_t>(y) * canvas.width);
  }
  standardise(field);
  return field;
}

}  // namespace penstock::dataset
