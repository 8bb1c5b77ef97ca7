// SPDX-License-Identifier: Apache-2.0
// Tools for painting synthetic photographs: a canvas of float colours, and fractal fields for
// detail at every scale. Plain values; one thread at a time per object.
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
struct Canvas {
  Canvas(std::int32_t width_, std::int32_t height_);

  std::size_t pixels() const noexcept { return rgb.size(); }
  /// Pixels of the shorter side: the unit of length in textures.
  float unit() const noexcept { return static_cast<float>(width < height ? width : height); }

  std::int32_t width, height;
  std::vector<Colour> rgb;  ///< [H,W]
};

/// A random field over the canvas, [H,W], with mean 0 and standard deviation 1. It is a sum of
/// octaves of noise; each has twice the frequency and `gain` times the amplitude of the one before.
/// A gain of 1 gives the 1/f amplitude spectrum of photographs; a lower gain is smoother. Only the
/// `octaves` finest octaves are kept; 0: all that fit.
std::vector<float> fractal_field(const Canvas& canvas, float gain, Random& random,
                                 std::int32_t octaves = 0);

}  // namespace penstock::dataset
