// SPDX-License-Identifier: Apache-2.0
#include "dataflow/images/colour.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>
#include <string>

#include "dataflow/entry.h"

namespace penstock {
namespace {

using Matrix = std::array<std::array<double, 3>, 3>;
constexpr std::array<double, 3> kLuma{0.299, 0.587, 0.114};

// From fb.resnet.torch, for ImageNet's pixels. Columns are eigenvectors.
constexpr std::array<double, 3> kEigenvalues{0.2175, 0.0188, 0.0045};
constexpr Matrix kEigenvectors{
    {{-0.5675, 0.7192, 0.4009}, {-0.5808, -0.0045, -0.8140}, {-0.5836, -0.6948, 0.4203}}};
constexpr double kLightingDeviation = 0.1;

// RGB to YIQ and back, with the three digits that TensorFlow uses.
constexpr Matrix kYiq{{kLuma, {0.596, -0.274, -0.322}, {0.211, -0.523, 0.312}}};
constexpr Matrix kFromYiq{
    {{1, 0.95617069, 0.62143257}, {1, -0.2726886, -0.64681324}, {1, -1.103744, 1.70062309}}};

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c{};
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 3; ++j) {
      for (std::size_t k = 0; k < 3; ++k) c[i][j] += a[i][k] * b[k][j];
    }
  }
  return c;
}

ColourStep affine(const Matrix& matrix, const std::array<double, 3>& offset = {}) {
  ColourStep step;
  for (std::size_t i = 0; i < 3; ++i) {
    step.offset[i] = static_cast<float>(offset[i]);
    for (std::size_t j = 0; j < 3; ++j) step.matrix[i][j] = static_cast<float>(matrix[i][j]);
  }
  return step;
}

Matrix scaling(double factor) { return {{{factor, 0, 0}, {0, factor, 0}, {0, 0, factor}}}; }

ColourStep with_factor(ColourStep::Kind kind, double factor) {
  ColourStep step;
  step.kind = kind;
  step.factor = static_cast<float>(factor);
  return step;
}

/// The Box-Muller method. The second of its two numbers is not used.
double normal(Random& random) {
  const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
  return radius * std::cos(2 * std::numbers::pi * random.uniform());
}

ColourSteps draw_tf(bool yiq, std::uint64_t turn, Random& random) {
  ColourSteps steps;
  const double shift = random.uniform(-32, 32);
  steps.push(affine(scaling(1), {shift, shift, shift}));
  const auto contrast = [&] {
    steps.push(with_factor(ColourStep::Kind::contrast, random.uniform(0.5, 1.5)));
  };
  if (turn % 2 == 1) contrast();
  const double saturation = random.uniform(0.5, 1.5);
  if (yiq) {
    const double hue = random.uniform(-0.2, 0.2) * std::numbers::pi;
    const double u = saturation * std::cos(hue), w = saturation * std::sin(hue);
    const Matrix turned{{{1, 0, 0}, {0, u, -w}, {0, w, u}}};
    steps.push(affine(product(kFromYiq, product(turned, kYiq))));
  } else {
    steps.push(with_factor(ColourStep::Kind::saturation, saturation));
    steps.push(with_factor(ColourStep::Kind::hue, random.uniform(-0.2, 0.2)));
  }
  if (turn % 2 == 0) contrast();
  return steps;
}

ColourStep draw_fbresnet(int which, Random& random) {
  ColourStep step;
  switch (which) {
    case 0:
      step = affine(scaling(random.uniform(0.6, 1.4)));
      step.clips = true;
      return step;
    case 1:
      step = with_factor(ColourStep::Kind::luma_contrast, random.uniform(0.6, 1.4));
      step.clips = true;
      return step;
    case 2: {
      const double a = random.uniform(0.6, 1.4);
      Matrix matrix = scaling(a);
      for (auto& row : matrix) {
        for (std::size_t j = 0; j < 3; ++j) row[j] += (1 - a) * kLuma[j];
      }
      return affine(matrix);
    }
    default: {
      std::array<double, 3> offset{};
      for (std::size_t j = 0; j < 3; ++j) {
        const double strength = kLightingDeviation * normal(random) * 255 * kEigenvalues[j];
        for (std::size_t i = 0; i < 3; ++i) offset[i] += strength * kEigenvectors[i][j];
      }
      return affine(scaling(1), offset);
    }
  }
}

float clipped(float x) { return std::min(std::max(x, 0.0F), 255.0F); }

/// The sum of a line. Eight partial sums avoid a wait for each addition.
double sum_of(const float* line, std::size_t count) {
  double sums[8] = {};
  std::size_t x = 0;
  for (; x + 8 <= count; x += 8) {
    for (std::size_t i = 0; i < 8; ++i) sums[i] += static_cast<double>(line[x + i]);
  }
  for (; x < count; ++x) sums[x % 8] += static_cast<double>(line[x]);
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

}  // namespace

Colour parse_colour(std::string_view component, std::string_view text) {
  return static_cast<Colour>(
      parse_choice(text, kColourValues, std::string(component) + ": option 'color'"));
}

ColourSteps draw_colour(Colour colour, std::uint64_t turn, Random& random) {
  if (colour == Colour::tf || colour == Colour::tf_yiq) {
    return draw_tf(colour == Colour::tf_yiq, turn, random);
  }
  ColourSteps steps;
  if (colour == Colour::fbresnet) {
    std::array<int, 4> order{0, 1, 2, 3};
    for (std::size_t i = 3; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
    for (const int which : order) steps.push(draw_fbresnet(which, random));
  }
  return steps;
}

// ---- one line of pixels -----------------------------------------------------

struct ColourDistorter::Planes {
  float *red, *green, *blue;
  std::size_t count;

  void load(const std::byte* pixels) const {
    const auto* const from = reinterpret_cast<const std::uint8_t*>(pixels);
    for (std::size_t x = 0; x < count; ++x) {
      red[x] = from[3 * x];
      green[x] = from[3 * x + 1];
      blue[x] = from[3 * x + 2];
    }
  }

  void store(std::byte* pixels) const {
    auto* const to = reinterpret_cast<std::uint8_t*>(pixels);
    const auto rounded = [](float x) {
      const float raised = clipped(x) + 0.5F;  // the cast then truncates; lround has no vector code
      return static_cast<std::uint8_t>(static_cast<int>(raised));
    };
    for (std::size_t x = 0; x < count; ++x) {
      to[3 * x] = rounded(red[x]);
      to[3 * x + 1] = rounded(green[x]);
      to[3 * x + 2] = rounded(blue[x]);
    }
  }

  void affine(const ColourStep& step) const {
    const auto& [m0, m1, m2] = step.matrix;
    for (std::size_t x = 0; x < count; ++x) {
      const float r = red[x], g = green[x], b = blue[x];
      red[x] = m0[0] * r + m0[1] * g + m0[2] * b + step.offset[0];
      green[x] = m1[0] * r + m1[1] * g + m1[2] * b + step.offset[1];
      blue[x] = m2[0] * r + m2[1] * g + m2[2] * b + step.offset[2];
    }
  }

  void contrast(float factor, const std::array<float, 3>& mean) const {
    float* const channels[] = {red, green, blue};
    for (std::size_t c = 0; c < 3; ++c) {
      for (std::size_t x = 0; x < count; ++x) {
        channels[c][x] = (channels[c][x] - mean[c]) * factor + mean[c];
      }
    }
  }

  /// S is (V - least) / V. V and the hue stay fixed, so all channels keep their position between V
  /// and the least one: x' = V + (x - V) S'/S. S'/S is the factor, or less if S' would exceed 1.
  void saturate(float factor) const {
    for (std::size_t x = 0; x < count; ++x) {
      const float r = red[x], g = green[x], b = blue[x];
      const float value = std::max(r, std::max(g, b));
      const float range = value - std::min(r, std::min(g, b));
      const float limit = range > 0 ? value / range : 0;
      const float ratio = value > 0 ? std::min(factor, limit) : 0;
      red[x] = value + (r - value) * ratio;
      green[x] = value + (g - value) * ratio;
      blue[x] = value + (b - value) * ratio;
    }
  }

  /// Each channel is a trapezoid over the hue, in sixths of a turn: at its maximum from the sixth
  /// before its own hue to the sixth after it, and at its minimum on the opposite side.
  void turn_hue(float turns) const {
    const auto unit = [](float x) { return std::min(std::max(x, 0.0F), 1.0F); };
    for (std::size_t x = 0; x < count; ++x) {
      const float r = red[x], g = green[x], b = blue[x];
      const float high = std::max(r, std::max(g, b)), low = std::min(r, std::min(g, b));
      const float range = high - low;
      const float scale = range > 0 ? 1 / range : 0;
      const float of_red = (g - b) * scale, of_green = 2 + (b - r) * scale,
                  of_blue = 4 + (r - g) * scale;
      float hue = (r == high ? of_red : g == high ? of_green : of_blue) + 6 * turns;
      hue = hue < 0 ? hue + 6 : hue;
      hue = hue >= 6 ? hue - 6 : hue;
      red[x] = low + range * unit(std::abs(hue - 3) - 1);
      green[x] = low + range * unit(2 - std::abs(hue - 2));
      blue[x] = low + range * unit(2 - std::abs(hue - 4));
    }
  }

  void clip() const {
    for (float* const channel : {red, green, blue}) {
      for (std::size_t x = 0; x < count; ++x) channel[x] = clipped(channel[x]);
    }
  }

  void apply(const ColourStep& step, const std::array<float, 3>& mean) const {
    switch (step.kind) {
      case ColourStep::Kind::affine:
        affine(step);
        break;
      case ColourStep::Kind::contrast:
      case ColourStep::Kind::luma_contrast:
        contrast(step.factor, mean);
        break;
      case ColourStep::Kind::saturation:
        saturate(step.factor);
        break;
      case ColourStep::Kind::hue:
        turn_hue(step.factor);
        break;
    }
    if (step.clips) clip();
  }
};

// ---- an image ---------------------------------------------------------------

void ColourDistorter::apply(const ColourSteps& steps, const ImageView& image) {
  PENSTOCK_ASSERT(image.dtype == DType::u8 && image.shape.channels == 3);
  const std::span<const ColourStep> all = steps.all();
  if (all.empty()) return;
  const auto width = static_cast<std::size_t>(image.shape.width);
  if (lines_.size() < 3 * width) lines_.resize(3 * width);
  const Planes planes{lines_.data(), lines_.data() + width, lines_.data() + 2 * width, width};
  const auto line = [&image](std::int32_t y) { return image.data + y * image.row_bytes; };

  const auto contrast = std::ranges::find_if(all, [](const ColourStep& step) {
    return step.kind == ColourStep::Kind::contrast || step.kind == ColourStep::Kind::luma_contrast;
  });
  std::array<float, 3> mean{};
  if (contrast != all.end()) {
    std::array<double, 3> sums{};
    for (std::int32_t y = 0; y < image.shape.height; ++y) {
      planes.load(line(y));
      for (auto step = all.begin(); step != contrast; ++step) planes.apply(*step, mean);
      sums[0] += sum_of(planes.red, width);
      sums[1] += sum_of(planes.green, width);
      sums[2] += sum_of(planes.blue, width);
    }
    const double count = static_cast<double>(width) * image.shape.height;
    const double luma = kLuma[0] * sums[0] + kLuma[1] * sums[1] + kLuma[2] * sums[2];
    const bool of_luma = contrast->kind == ColourStep::Kind::luma_contrast;
    for (std::size_t c = 0; c < 3; ++c) {
      mean[c] = static_cast<float>((of_luma ? luma : sums[c]) / count);
    }
  }
  for (std::int32_t y = 0; y < image.shape.height; ++y) {
    planes.load(line(y));
    for (const ColourStep& step : all) planes.apply(step, mean);
    planes.store(line(y));
  }
}

}  // namespace penstock
