// SPDX-License-Identifier: Apache-2.0
// Computes from which source pixels along one axis an output pixel is made, and with which weights.
// One table of runs covers the resize methods of PIL, torchvision, TensorFlow and OpenCV.
//
// An axis is continuous: source pixel k covers [k, k + 1) with its centre at k + 0.5. Output i of n
// over a stretch of length L from b has its centre at b + (i + 0.5) s, where s = L / n; s > 1
// shrinks. Weights are float, and add up to one.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "dataflow/options.h"

namespace penstock {

/// A part of one axis of an image, in pixels, and the pixels that may contribute to it.
struct Stretch {
  double begin = 0, length = 0;    ///< what the output covers
  std::int32_t low = 0, high = 0;  ///< [low, high) may be read; not empty
};

/// Source pixels [first, end).
struct PixelRange {
  std::int32_t first = 0, end = 0;
  bool operator==(const PixelRange&) const = default;
};

/// Weights are functions of the distance d between the output's centre c and the centre of a source
/// pixel. Antialiased filters are wider by max(1, s), and leave out pixels that may not be read.
/// The others always use the nearest neighbours only, for any s, and repeat the last pixel beyond
/// the edge.
///
/// The cubic is Keys' with parameter a: (a + 2) d^3 - (a + 3) d^2 + 1 for d < 1, and a (d^3 - 5 d^2
/// + 8 d - 4) for d < 2 (R. Keys, "Cubic convolution interpolation for digital image processing",
/// 1981). TensorFlow 1 (resize_images with align_corners=False) places output i at c = b + i s +
/// 0.5, the others at c = b + (i + 0.5) s.
enum class Filter : std::uint8_t {
  bilinear,     ///< antialiased triangle 1 - d: PIL, and torchvision with antialias
  bicubic,      ///< antialiased cubic, a = -0.5: PIL
  area,         ///< overlap of the pixel with [b + i s, b + (i + 1) s): TensorFlow, OpenCV
  nearest,      ///< the pixel that holds c: PIL, and torchvision's nearest-exact
  tf_nearest,   ///< as nearest, at TensorFlow 1's positions
  tf_bilinear,  ///< triangle, at TensorFlow 1's positions
  tf_bicubic,   ///< cubic, a = -0.75, at TensorFlow 1's positions
  cv_bilinear,  ///< triangle, not antialiased: OpenCV's INTER_LINEAR, torchvision without antialias
  cv_bicubic,   ///< cubic, a = -0.75, not antialiased: OpenCV's INTER_CUBIC
};

/// The values of the option `resize`: the names of Filter in its order, and two sets of four
/// filters used in turn.
inline constexpr OptionValue kResizeValues[] = {
    {"bilinear", "antialiased triangle filter, as in PIL and torchvision"},
    {"bicubic", "antialiased cubic filter (a = -0.5), as in PIL"},
    {"area", "mean over the area of each output pixel"},
    {"nearest", "nearest pixel to the centre"},
    {"tf_nearest", "TensorFlow 1: nearest pixel to the corner"},
    {"tf_bilinear", "TensorFlow 1: not antialiased, aligned to corners"},
    {"tf_bicubic", "TensorFlow 1: not antialiased, a = -0.75, aligned to corners"},
    {"cv_bilinear", "OpenCV: not antialiased"},
    {"cv_bicubic", "OpenCV: not antialiased, a = -0.75"},
    {"round_robin", "nearest, bilinear, bicubic and area in turn, by sample index + epoch"},
    {"tf_round_robin", "the tf_ methods and area in turn"},
};

/// The filters of that name: one, or four that are used in turn. Throws ConfigError that names
/// `component` for an unknown name.
std::span<const Filter> parse_resize(std::string_view component, std::string_view text);

/// Does the filter average over the area of an output pixel? If so, an image may be shrunk before
/// it.
bool is_antialiased(Filter filter);

/// Does the filter have negative weights? If so, sums can leave the range of pixels.
bool overshoots(Filter filter);

/// One axis of a resize: a run of source pixels with weights for each output pixel.
class FilterTaps {
 public:
  struct Run {
    std::int32_t first = 0, count = 0;
    const float* weights = nullptr;  ///< add up to one; zeros from count up to max_count()
  };

  /// `mirrored`: the image is mirrored. The order of the outputs is then reversed. TensorFlow's
  /// positions are not symmetric, so with them the source is mirrored before it is resized, as in
  /// tf_cnn_benchmarks. Allocates only to grow.
  void build(const Stretch& stretch, std::int32_t outputs, bool mirrored,
             Filter filter = Filter::bilinear);

  Run run(std::int32_t output) const noexcept {
    const PixelRange& range = ranges_[static_cast<std::size_t>(output)];
    return {range.first, range.end - range.first,
            weights_.data() + static_cast<std::size_t>(output) * stride_};
  }
  /// The length of the longest run.
  std::int32_t max_count() const noexcept { return max_count_; }
  /// The range of source pixels that the outputs read.
  PixelRange reads() const noexcept { return reads_; }

 private:
  void begin(const Stretch& stretch, std::int32_t outputs, double radius);
  /// Fills runs from `centre(i)` of output i and `weight(distance)`, which is zero from `radius`
  /// on.
  template <typename Centre, typename Weight>
  void fill(const Stretch& stretch, std::int32_t outputs, bool reversed, bool repeats,
            double radius, Centre centre, Weight weight);
  /// Picks one source pixel for each output.
  template <typename Place>
  void pick(const Stretch& stretch, std::int32_t outputs, bool reversed, Place place);
  void finish(std::int32_t output, const PixelRange& range);

  std::vector<PixelRange> ranges_;
  std::vector<float> weights_;  // [outputs][stride_]
  std::size_t stride_ = 0;
  std::int32_t max_count_ = 1;
  PixelRange reads_;
};

}  // namespace penstock
