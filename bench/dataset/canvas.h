// SPDX-License-Identifier: Apache-2.0
// Tools for painting synthetic scenes: a canvas of float colours, fractal fields for detail at
// every scale, and brush strokes. Plain values; one thread at a time per object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dataflow/random.h"

namespace penstock::dataset {

/// 0 is black and 1 is white. The camera, not the painter, clips values outside.
struct Colour {
  float r = 0, g = 0, b = 0;
};
constexpr Colour operator*(Colour c, float f) noexcept { return {c.r * f, c.g * f, c.b * f}; }
constexpr Colour operator+(Colour a, Colour b) noexcept {
  return {a.r + b.r, a.g + b.g, a.b + b.b};
}
/// Returns `a` at t = 0 and `b` at t = 1.
constexpr Colour mix(Colour a, Colour b, float t) noexcept { return a * (1 - t) + b * t; }
/// `hue` in turns (any value), `saturation` and `value` in [0, 1].
Colour hsv(float hue, float saturation, float value);

/// Returns 0 at `low` and beyond, 1 at `high` and beyond, and a smooth transition between. `low`
/// may exceed `high`.
constexpr float smoothstep(float low, float high, float x) noexcept {
  const float raw = (x - low) / (high - low);
  const float t = raw < 0 ? 0 : raw > 1 ? 1 : raw;
  return t * t * (3 - 2 * t);
}
inline float uniform(Random& random, float low, float high) {
  return low + (high - low) * static_cast<float>(random.uniform());
}
/// Uniform in [0, 1), as a function of the cell and the salt.
inline float cell_noise(std::int32_t column, std::int32_t row, std::uint64_t salt) {
  const auto cell = (static_cast<std::uint64_t>(static_cast<std::uint32_t>(column)) << 32) |
                    static_cast<std::uint32_t>(row);
  return static_cast<float>(mix64(cell + salt * 0x9e3779b97f4a7c15U) >> 40) * 0x1p-24F;
}

struct Canvas {
  Canvas(std::int32_t width_, std::int32_t height_);

  std::size_t pixels() const noexcept { return rgb.size(); }
  /// Pixels of the shorter side: the unit of length in scenes.
  float unit() const noexcept { return static_cast<float>(width < height ? width : height); }

  std::int32_t width, height;
  std::vector<Colour> rgb;  ///< [H,W]
};

/// Sets every pixel to shade(x, y, index), with x and y in units of the shorter side.
template <typename Shade>
void paint_pixels(Canvas& canvas, Shade shade) {
  const float step = 1 / canvas.unit();
  std::size_t index = 0;
  for (std::int32_t y = 0; y < canvas.height; ++y) {
    for (std::int32_t x = 0; x < canvas.width; ++x, ++index) {
      canvas.rgb[index] = shade(static_cast<float>(x) * step, static_cast<float>(y) * step, index);
    }
  }
}

/// A random field over the canvas, [H,W], with mean 0 and standard deviation 1. It is a sum of
/// octaves of noise; each has twice the frequency and `gain` times the amplitude of the one before.
/// A gain of 1 gives the 1/f amplitude spectrum of photographs; a lower gain is smoother. Only the
/// `octaves` finest octaves are kept; 0: all that fit.
std::vector<float> fractal_field(const Canvas& canvas, float gain, Random& random,
                                 std::int32_t octaves = 0);

/// A tapered, bent stroke from (x, y) towards (x + dx, y + dy), in pixels.
struct Stroke {
  float x = 0, y = 0, dx = 0, dy = 0;
  float bend = 0;   ///< offset of the middle from the straight line
  float width = 2;  ///< at the root; the tip is a point
  Colour root{}, tip{};
};
void paint_stroke(Canvas& canvas, const Stroke& stroke);

}  // namespace penstock::dataset
