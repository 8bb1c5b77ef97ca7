// SPDX-License-Identifier: Apache-2.0
// Colour augmentation. The oracle computes each recipe from its definition, in double, over whole
// images, with the textbook's case distinction for hues.
#include "dataflow/images/colour.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace penstock {
namespace {

constexpr int kWidth = 37, kHeight = 21;
using Pixel = std::array<double, 3>;

struct Image {
  std::vector<std::byte> bytes;
  ImageView view() { return {bytes.data(), {kHeight, kWidth, 3}, DType::u8, kWidth * 3 + 2}; }
};

/// All corners of the colour cube, greys, and random colours.
Image make_image(std::uint64_t seed) {
  Image image{std::vector<std::byte>(static_cast<std::size_t>(kWidth * 3 + 2) * kHeight)};
  Random random(seed);
  random.fill(image.bytes);
  for (int y = 0; y < kHeight; y += 3) {
    for (int x = 0; x < kWidth; ++x) {
      const std::size_t at = static_cast<std::size_t>(y) * (kWidth * 3 + 2) + x * 3;
      for (std::size_t c = 0; c < 3; ++c) {
        image.bytes[at + c] =
            y % 2 == 0 ? std::byte(random.below(2) * 255) : image.bytes[at];  // a corner of the
                                                                              // cube, or a grey
      }
    }
  }
  return image;
}

std::vector<Pixel> pixels_of(const Image& image) {
  std::vector<Pixel> pixels;
  for (int y = 0; y < kHeight; ++y) {
    for (int x = 0; x < kWidth; ++x) {
      const std::size_t at = static_cast<std::size_t>(y) * (kWidth * 3 + 2) + x * 3;
      Pixel& pixel = pixels.emplace_back();
      for (std::size_t c = 0; c < 3; ++c) pixel[c] = std::to_integer<int>(image.bytes[at + c]);
    }
  }
  return pixels;
}

/// Hue in degrees, saturation and value.
Pixel to_hsv(const Pixel& rgb) {
  const auto [r, g, b] = rgb;
  const double v = std::max({r, g, b}), range = v - std::min({r, g, b});
  double h = 0;
  if (range > 0) {
    if (v == r) {
      h = 60 * std::fmod((g - b) / range + 6, 6);
    } else if (v == g) {
      h = 60 * ((b - r) / range + 2);
    } else {
      h = 60 * ((r - g) / range + 4);
    }
  }
  return {h, v > 0 ? range / v : 0, v};
}

Pixel from_hsv(const Pixel& hsv) {
  const auto [h, s, v] = hsv;
  const double c = v * s, m = v - c;
  const double x = c * (1 - std::abs(std::fmod(h / 60, 2) - 1));
  const Pixel sectors[] = {{c, x, 0}, {x, c, 0}, {0, c, x}, {0, x, c}, {x, 0, c}, {c, 0, x}};
  Pixel rgb = sectors[static_cast<std::size_t>(h / 60) % 6];
  for (double& channel : rgb) channel += m;
  return rgb;
}

double luma(const Pixel& p) { return 0.299 * p[0] + 0.587 * p[1] + 0.114 * p[2]; }

void clip(std::vector<Pixel>& pixels) {
  for (Pixel& pixel : pixels) {
    for (double& x : pixel) x = std::clamp(x, 0.0, 255.0);
  }
}

void add(std::vector<Pixel>& pixels, const Pixel& offset) {
  for (Pixel& pixel : pixels) {
    for (std::size_t c = 0; c < 3; ++c) pixel[c] += offset[c];
  }
}

void contrast(std::vector<Pixel>& pixels, double factor) {
  Pixel mean{};
  for (const Pixel& pixel : pixels) {
    for (std::size_t c = 0; c < 3; ++c) mean[c] += pixel[c] / static_cast<double>(pixels.size());
  }
  for (Pixel& pixel : pixels) {
    for (std::size_t c = 0; c < 3; ++c) pixel[c] = mean[c] + factor * (pixel[c] - mean[c]);
  }
}

void saturation(std::vector<Pixel>& pixels, double factor) {
  for (Pixel& pixel : pixels) {
    Pixel hsv = to_hsv(pixel);
    hsv[1] = std::clamp(hsv[1] * factor, 0.0, 1.0);
    pixel = from_hsv(hsv);
  }
}

/// For colours in a cone whose grey axis may be shifted: the smallest channel is first moved to
/// zero.
void hue(std::vector<Pixel>& pixels, double turns) {
  for (Pixel& pixel : pixels) {
    const double least = std::min({pixel[0], pixel[1], pixel[2]});
    for (double& x : pixel) x -= least;
    Pixel hsv = to_hsv(pixel);
    hsv[0] = std::fmod(hsv[0] + 360 * turns + 360, 360);
    pixel = from_hsv(hsv);
    for (double& x : pixel) x += least;
  }
}

void hsv_in_yiq(std::vector<Pixel>& pixels, double factor, double angle) {
  for (Pixel& p : pixels) {
    const double y = luma(p), i = 0.596 * p[0] - 0.274 * p[1] - 0.322 * p[2],
                 q = 0.211 * p[0] - 0.523 * p[1] + 0.312 * p[2];
    const double i2 = factor * (i * std::cos(angle) - q * std::sin(angle)),
                 q2 = factor * (i * std::sin(angle) + q * std::cos(angle));
    p = {y + 0.95617069 * i2 + 0.62143257 * q2, y - 0.2726886 * i2 - 0.64681324 * q2,
         y - 1.103744 * i2 + 1.70062309 * q2};
  }
}

void plain_tf(std::vector<Pixel>& pixels, bool yiq, bool contrast_first, Random& random) {
  const double shift = random.uniform(-32, 32);
  add(pixels, {shift, shift, shift});
  if (contrast_first) contrast(pixels, random.uniform(0.5, 1.5));
  const double factor = random.uniform(0.5, 1.5);
  const double turns = random.uniform(-0.2, 0.2);
  if (yiq) {
    hsv_in_yiq(pixels, factor, turns * std::numbers::pi);
  } else {
    saturation(pixels, factor);
    hue(pixels, turns);
  }
  if (!contrast_first) contrast(pixels, random.uniform(0.5, 1.5));
}

void plain_fbresnet(std::vector<Pixel>& pixels, Random& random) {
  int order[] = {0, 1, 2, 3};
  for (std::size_t i = 3; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
  for (const int which : order) {
    if (which == 0) {
      const double factor = random.uniform(0.6, 1.4);
      for (Pixel& p : pixels) p = {p[0] * factor, p[1] * factor, p[2] * factor};
      clip(pixels);
    } else if (which == 1) {
      const double factor = random.uniform(0.6, 1.4);
      double mean = 0;
      for (const Pixel& p : pixels) mean += luma(p) / static_cast<double>(pixels.size());
      for (Pixel& p : pixels) {
        for (double& x : p) x = x * factor + mean * (1 - factor);
      }
      clip(pixels);
    } else if (which == 2) {
      const double a = random.uniform(0.6, 1.4);
      for (Pixel& p : pixels) {
        const double grey = luma(p);
        for (double& x : p) x = a * x + (1 - a) * grey;
      }
    } else {
      const Pixel values{0.2175, 0.0188, 0.0045};
      const Pixel vectors[] = {
          {-0.5675, -0.5808, -0.5836}, {0.7192, -0.0045, -0.6948}, {0.4009, -0.8140, 0.4203}};
      for (std::size_t v = 0; v < 3; ++v) {
        const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
        const double n = radius * std::cos(2 * std::numbers::pi * random.uniform());
        const double strength = n * 0.1 * values[v] * 255;
        add(pixels, {strength * vectors[v][0], strength * vectors[v][1], strength * vectors[v][2]});
      }
    }
  }
}

void expect_equals_definition(Colour colour, std::uint64_t turn, std::uint64_t seed) {
  Image image = make_image(seed);
  const std::vector<std::byte> before = image.bytes;
  std::vector<Pixel> exact = pixels_of(image);
  Random random(seed, 1), again(seed, 1);
  ColourDistorter distorter;
  distorter.apply(draw_colour(colour, turn, random), image.view());
  if (colour == Colour::fbresnet) {
    plain_fbresnet(exact, again);
  } else {
    plain_tf(exact, colour == Colour::tf_yiq, turn % 2 == 1, again);
  }
  EXPECT_EQ(random.bits(), again.bits()) << "another number of draws";
  clip(exact);
  const std::vector<Pixel> ours = pixels_of(image);
  double worst = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    for (std::size_t c = 0; c < 3; ++c) {
      worst = std::max(worst, std::abs(ours[i][c] - exact[i][c]));
    }
  }
  EXPECT_LE(worst, 0.51) << kColourValues[static_cast<std::size_t>(colour)].name << ", turn "
                         << turn << ", seed " << seed;
  // Padding bytes between lines do not change.
  for (std::size_t y = 1; y <= kHeight; ++y) {
    const std::size_t at = y * (kWidth * 3 + 2);
    EXPECT_EQ(image.bytes[at - 1], before[at - 1]);
    EXPECT_EQ(image.bytes[at - 2], before[at - 2]);
  }
}

TEST(Colour, EveryRecipeEqualsItsDefinition) {
  for (const Colour colour : {Colour::tf, Colour::tf_yiq, Colour::fbresnet}) {
    for (std::uint64_t seed = 0; seed < 60; ++seed) expect_equals_definition(colour, seed, seed);
  }
}

TEST(Colour, NoneDrawsNothingAndLeavesPixels) {
  Random random(1), untouched(1);
  Image image = make_image(1);
  const std::vector<std::byte> before = image.bytes;
  ColourDistorter distorter;
  distorter.apply(draw_colour(Colour::none, 0, random), image.view());
  EXPECT_EQ(image.bytes, before);
  EXPECT_EQ(random.bits(), untouched.bits());
}

TEST(Colour, HueOfAWholeTurnIsTheSamePixel) {
  // A turn of a third: red becomes green, and green becomes blue.
  Image image = make_image(4);
  const std::vector<std::byte> before = image.bytes;
  ColourStep third;
  third.kind = ColourStep::Kind::hue;
  third.factor = 1.0F / 3;
  ColourSteps steps;
  steps.push(third);
  ColourDistorter distorter;
  distorter.apply(steps, image.view());
  const std::vector<Pixel> once = pixels_of(image);
  Image original{before};
  const std::vector<Pixel> first = pixels_of(original);
  for (std::size_t i = 0; i < once.size(); ++i) {
    for (std::size_t c = 0; c < 3; ++c) EXPECT_EQ(once[i][(c + 1) % 3], first[i][c]);
  }
  distorter.apply(steps, image.view());
  distorter.apply(steps, image.view());
  EXPECT_EQ(image.bytes, before);
}

TEST(Colour, MoreThanFourStepsAreRefused) {
  ColourSteps steps;
  for (int i = 0; i < 4; ++i) steps.push({});
  EXPECT_THROW(steps.push({}), std::logic_error);
  EXPECT_EQ(steps.all().size(), 4U);
}

TEST(Colour, DrawsLieWithinTheirBounds) {
  double brightness = 0, brightest = 0, lighting = 0;
  std::array<int, 4> first{};
  constexpr int kCount = 4000;
  for (int i = 0; i < kCount; ++i) {
    Random random(2, 0, static_cast<std::uint64_t>(i));
    const ColourSteps tf = draw_colour(Colour::tf, static_cast<std::uint64_t>(i), random);
    ASSERT_EQ(tf.all().size(), 4U);
    EXPECT_EQ(tf.all()[i % 2 == 0 ? 3 : 1].kind, ColourStep::Kind::contrast);
    brightness += tf.all()[0].offset[0] / kCount;
    brightest = std::max(brightest, static_cast<double>(std::abs(tf.all()[0].offset[0])));
    for (const ColourStep& step : tf.all()) {
      if (step.kind == ColourStep::Kind::hue) {
        EXPECT_LE(std::abs(step.factor), 0.2F);
      } else if (step.kind != ColourStep::Kind::affine) {
        EXPECT_GE(step.factor, 0.5F);
        EXPECT_LE(step.factor, 1.5F);
      }
    }
    const ColourSteps list = draw_colour(Colour::fbresnet, 0, random);
    for (const ColourStep& step : list.all()) {
      // Lighting shifts, brightness scales, saturation mixes.
      const std::size_t kind = step.kind == ColourStep::Kind::luma_contrast ? 1
                               : step.offset[0] != 0                        ? 3
                               : step.matrix[0][1] != 0                     ? 2
                                                                            : 0;
      if (&step == &list.all()[0]) first[kind] += 1;
      if (kind == 3) lighting += step.offset[0] * step.offset[0] / kCount;
    }
  }
  EXPECT_NEAR(brightness, 0, 1);
  EXPECT_GT(brightest, 31.9);
  EXPECT_LE(brightest, 32);
  for (const int count : first) EXPECT_NEAR(count, kCount / 4, 120);
  const double r = 0.1 * 255;
  const double variance = std::pow(r * 0.2175 * 0.5675, 2) + std::pow(r * 0.0188 * 0.7192, 2) +
                          std::pow(r * 0.0045 * 0.4009, 2);
  EXPECT_NEAR(lighting / variance, 1, 0.08);
}

TEST(Colour, NamesMatchTheTable) {
  for (std::size_t i = 0; i < std::size(kColourValues); ++i) {
    EXPECT_EQ(parse_colour("jpeg", kColourValues[i].name), static_cast<Colour>(i));
  }
  EXPECT_THROW(parse_colour("jpeg", "sepia"), ConfigError);
}

}  // namespace
}  // namespace penstock
