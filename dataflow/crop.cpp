// SPDX-License-Identifier: Apache-2.0
#include "dataflow/crop.h"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

// torchvision's defaults, from Szegedy et al., "Going deeper with convolutions", 2015.
constexpr double kMinArea = 0.08, kMaxArea = 1.0;
constexpr double kMinRatio = 3.0 / 4, kMaxRatio = 4.0 / 3;
constexpr int kTries = 10;
/// The usual evaluation: resize to 256, crop 224.
constexpr double kCentreZoom = 256.0 / 224;

Stretch stretch_of(std::int64_t begin, std::int64_t length) {
  return {static_cast<double>(begin), static_cast<double>(length), static_cast<std::int32_t>(begin),
          static_cast<std::int32_t>(begin + length)};
}

std::int64_t place(std::int64_t room, Random& random) {
  return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(room) + 1));
}

}  // namespace

Region random_resized_crop(ImageSize image, Random& random) {
  const std::int64_t width = image.width, height = image.height;
  const double area = static_cast<double>(width) * static_cast<double>(height);
  for (int i = 0; i < kTries; ++i) {
    const double target = area * random.uniform(kMinArea, kMaxArea);
    const double ratio = std::exp(random.uniform(std::log(kMinRatio), std::log(kMaxRatio)));
    const std::int64_t w = std::llround(std::sqrt(target * ratio));
    const std::int64_t h = std::llround(std::sqrt(target / ratio));
    if (w < 1 || w > width || h < 1 || h > height) continue;
    const std::int64_t top = place(height - h, random);
    const std::int64_t left = place(width - w, random);
    return {stretch_of(left, w), stretch_of(top, h)};
  }
  const double ratio = static_cast<double>(width) / static_cast<double>(height);
  std::int64_t w = width, h = height;
  if (ratio < kMinRatio) h = std::llround(static_cast<double>(w) / kMinRatio);
  if (ratio > kMaxRatio) w = std::llround(static_cast<double>(h) * kMaxRatio);
  return {stretch_of((width - w) / 2, w), stretch_of((height - h) / 2, h)};
}

Region centre_crop(ImageSize image, const ImageShape& output) {
  const double zoom = kCentreZoom * std::max(static_cast<double>(output.width) / image.width,
                                             static_cast<double>(output.height) / image.height);
  const double w = output.width / zoom, h = output.height / zoom;
  return {{(image.width - w) / 2, w, 0, image.width}, {(image.height - h) / 2, h, 0, image.height}};
}

Region whole_image(ImageSize image) {
  return {stretch_of(0, image.width), stretch_of(0, image.height)};
}

}  // namespace penstock
