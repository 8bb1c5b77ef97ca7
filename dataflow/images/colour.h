// SPDX-License-Identifier: Apache-2.0
// Colour distortions of training images, as tf_cnn_benchmarks and tensorpack draw them. They change
// the finished crop in place, in float, and round to 8 bits once, at the end. Contrast needs the
// mean of the pixels after the steps before it: such images take two passes, so no copy of them is
// kept.
//
// Pixels are RGB, 0 to 255, and may leave that range between steps unless a step clips.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/options.h"
#include "dataflow/random.h"
#include "dataflow/sample.h"

namespace penstock {

enum class Colour : std::uint8_t { none, tf, tf_yiq, fbresnet };

/// The values of the option `color`, in the order of Colour.
inline constexpr OptionValue kColourValues[] = {
    {"none", "no distortion"},
    {"tf",
     "tf_cnn_benchmarks --distortions --nodistort_color_in_yiq: brightness, saturation, hue, "
     "contrast"},
    {"tf_yiq", "tf_cnn_benchmarks --distortions: saturation and hue in YIQ"},
    {"fbresnet", "tensorpack's fbresnet_augmentor: brightness, contrast, saturation, lighting"},
};

/// Throws ConfigError that names `component` for an unknown name.
Colour parse_colour(std::string_view component, std::string_view text);

/// One operation on every pixel.
struct ColourStep {
  enum class Kind : std::uint8_t {
    affine,         ///< x' = M x + b
    contrast,       ///< x' = factor (x - mean) + mean, with each channel's own mean
    luma_contrast,  ///< as contrast, with the mean of 0.299 R + 0.587 G + 0.114 B for all channels
    saturation,     ///< HSV: S' = min(factor S, 1); negative V has no saturation
    hue,            ///< HSV: H' = H + factor turns, |factor| <= 1/2; keeps the channels' extremes
  };
  Kind kind = Kind::affine;
  float factor = 1;
  std::array<std::array<float, 3>, 3> matrix{};
  std::array<float, 3> offset{};
  bool clips = false;  ///< to [0, 255], after the step
};

/// The steps for one image, with at most one contrast step.
class ColourSteps {
 public:
  /// Throws std::logic_error for a fifth step.
  void push(const ColourStep& step) {
    PENSTOCK_ASSERT(size_ < steps_.size());
    steps_[size_++] = step;
  }
  std::span<const ColourStep> all() const noexcept { return {steps_.data(), size_}; }

 private:
  std::array<ColourStep, 4> steps_{};
  std::size_t size_ = 0;
};

/// Draws the steps. Each step draws its random numbers when its turn comes; `none` draws nothing. U
/// is uniform, N normal.
///
/// tf: brightness x + U(-32, 32); saturation U(0.5, 1.5); hue U(-0.2, 0.2) turns; contrast U(0.5,
/// 1.5); clipped at the end. If `turn` is odd, contrast comes second. tf_yiq: saturation s and hue
/// h = U(-0.2 pi, 0.2 pi), drawn in this order. They are one linear step, which keeps Y, scales (I,
/// Q) by s and rotates them by h.
///
/// fbresnet: brightness U(0.6, 1.4) x, clipped; luma contrast U(0.6, 1.4), clipped; saturation a x
/// + (1 - a) luma, a = U(0.6, 1.4); lighting x + the sum over three eigenvectors v of 0.1 N 255
/// lambda v. Their order is drawn first. Saturation and lighting are clipped only at the end.
ColourSteps draw_colour(Colour colour, std::uint64_t turn, Random& random);

/// Applies the steps. Each thread needs its own distorter.
class ColourDistorter {
 public:
  /// Changes `image` (u8, three channels) in place. Allocates only if the image is wider than all
  /// images before.
  void apply(const ColourSteps& steps, const ImageView& image);

 private:
  struct Planes;
  std::vector<float> lines_;  // red, green, blue
};

}  // namespace penstock
