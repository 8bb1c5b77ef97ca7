// SPDX-License-Identifier: Apache-2.0
#include "dataflow/images/crop.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>

#include "dataflow/entry.h"

namespace penstock {
namespace {

// torchvision's defaults, from Szegedy et al., "Going deeper with convolutions", 2015.
constexpr double kMinArea = 0.08, kMaxArea = 1.0;
constexpr double kMinRatio = 3.0 / 4, kMaxRatio = 4.0 / 3;
constexpr int kTries = 10;
/// The usual evaluation: resize to 256, crop 224.
constexpr double kCentreZoom = 256.0 / 224;

// Parameters of tf_cnn_benchmarks for sample_distorted_bounding_box, and the zoom of its
// evaluation.
constexpr double kTfMinArea = 0.05, kTfMinRatio = 0.75, kTfMaxRatio = 1.33, kTfMinCovered = 0.1;
constexpr int kTfTries = 100;
constexpr double kTfCentreZoom = 1.145;

constexpr double kTensorpackMaxRatio = 1.333;

Stretch stretch_of(std::int64_t begin, std::int64_t length) {
  return {static_cast<double>(begin), static_cast<double>(length), static_cast<std::int32_t>(begin),
          static_cast<std::int32_t>(begin + length)};
}

std::int64_t place(std::int64_t room, Random& random) {
  return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(room) + 1));
}

/// The largest of 1..`height` whose width at `ratio`, rounded, is at most `width`; 0 if there is
/// none.
std::int64_t tallest(std::int64_t width, std::int64_t height, double ratio) {
  std::int64_t h =
      std::min<std::int64_t>(height, std::llrint(static_cast<double>(width + 1) / ratio));
  while (h > 0 && std::llrint(static_cast<double>(h) * ratio) > width) --h;
  return h;
}

/// True if the region covers a tenth of a box.
bool covers_an_object(const Region& region, ImageSize image, std::span<const ObjectBox> boxes) {
  const auto pixels = [](const Stretch& stretch, float low, float high, std::int32_t size) {
    const auto begin = static_cast<std::int32_t>(low * static_cast<float>(size)),
               end = static_cast<std::int32_t>(high * static_cast<float>(size));
    const std::int32_t both = std::min(end, stretch.high) - std::max(begin, stretch.low);
    return std::pair<double, double>(end - begin, std::max(both, 0));
  };
  return std::ranges::any_of(boxes, [&](const ObjectBox& box) {
    const auto [width, columns] = pixels(region.columns, box.left, box.right, image.width);
    const auto [height, rows] = pixels(region.rows, box.top, box.bottom, image.height);
    return width * height >= 1 && columns * rows >= kTfMinCovered * width * height;
  });
}

/// The centre of an image that is resized to `zoomed` and then cut to `target` pixels.
Stretch centre_of_resized(std::int32_t size, std::int64_t zoomed, std::int32_t target) {
  const double scale = static_cast<double>(size) / static_cast<double>(zoomed);
  const std::int64_t begin = (zoomed - target) / 2;
  return {static_cast<double>(begin) * scale, target * scale, 0, size};
}

/// tensorpack's ResizeShortestEdge to `zoom` times the size that the output needs, and its
/// CenterCrop.
Region tensorpack_centre(ImageSize image, const ImageShape& output, double zoom) {
  const double scale = zoom * std::max(static_cast<double>(output.width) / image.width,
                                       static_cast<double>(output.height) / image.height);
  const auto resized = [scale](std::int32_t size, std::int32_t target) {
    return std::max<std::int64_t>(target, std::llround(scale * size));
  };
  return {centre_of_resized(image.width, resized(image.width, output.width), output.width),
          centre_of_resized(image.height, resized(image.height, output.height), output.height)};
}

/// RandomResizedCrop with its default parameters: 8 to 100 % of the area, aspect ratio 3/4 to 4/3,
/// uniform in its logarithm. After ten failed tries it takes the largest centred part with such a
/// ratio. The filter stays inside.
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

/// Resize(256) and CenterCrop(224), scaled to `output`, as one region: the shorter side becomes
/// 256/224 of the output's. As in the original, the filter reads beyond the region. Unlike the
/// original, the longer side is not rounded to a whole number of pixels before the crop.
Region centre_crop(ImageSize image, const ImageShape& output) {
  const double zoom = kCentreZoom * std::max(static_cast<double>(output.width) / image.width,
                                             static_cast<double>(output.height) / image.height);
  const double w = output.width / zoom, h = output.height / zoom;
  return {{(image.width - w) / 2, w, 0, image.width}, {(image.height - h) / 2, h, 0, image.height}};
}

/// The whole image; it does not keep the aspect ratio.
Region whole_image(ImageSize image) {
  return {stretch_of(0, image.width), stretch_of(0, image.height)};
}

/// sample_distorted_bounding_box as tf_cnn_benchmarks calls it. It draws the aspect ratio uniformly
/// from 0.75 to 1.33. Then it draws the height uniformly from the whole numbers that keep the area
/// within 5 to 100 % and the width inside the image. Then it draws a position, but never the last
/// possible row or column. It makes up to 100 tries until at least 10 % of an object's box is
/// covered, then takes the whole image. Boxes are rounded down to whole pixels; those without a
/// pixel do not count. Without boxes the whole image is the object. The filter stays inside.
Region tf_box_crop(ImageSize image, std::span<const ObjectBox> boxes, Random& random) {
  const std::int64_t width = image.width, height = image.height;
  const double area = static_cast<double>(width) * static_cast<double>(height);
  const double least = area * kTfMinArea;
  const auto width_of = [](std::int64_t h, double ratio) {
    return std::llrint(static_cast<double>(h) * ratio);
  };
  for (int i = 0; i < kTfTries; ++i) {
    const double ratio = random.uniform(kTfMinRatio, kTfMaxRatio);
    const std::int64_t high =
        std::min<std::int64_t>(tallest(width, height, ratio), std::llrint(std::sqrt(area / ratio)));
    const std::int64_t low = std::min<std::int64_t>(high, std::llrint(std::sqrt(least / ratio)));
    std::int64_t h = low + place(high - low, random);
    // Rounding may have moved the area out of bounds by a row.
    if (static_cast<double>(h * width_of(h, ratio)) < least) ++h;
    if (static_cast<double>(h * width_of(h, ratio)) > area) --h;
    const std::int64_t w = width_of(h, ratio);
    const auto covered = static_cast<double>(h * w);
    if (w < 1 || w > width || h < 1 || h > height) continue;
    if (covered < least || covered > area) continue;
    if (boxes.empty() && covered < kTfMinCovered * area) continue;
    const std::int64_t top = place(std::max<std::int64_t>(0, height - h - 1), random);
    const std::int64_t left = place(std::max<std::int64_t>(0, width - w - 1), random);
    const Region region{stretch_of(left, w), stretch_of(top, h)};
    if (boxes.empty() || covers_an_object(region, image, boxes)) return region;
  }
  return whole_image(image);
}

/// The evaluation of tf_cnn_benchmarks. It resizes both sides by the same factor, rounded down to
/// whole pixels, to cover 1.145 times the output, and takes the centre.
Region tf_centre_crop(ImageSize image, const ImageShape& output) {
  const double ratio = std::max(static_cast<double>(output.width) / image.width,
                                static_cast<double>(output.height) / image.height);
  const auto resized = [ratio](std::int32_t size, std::int32_t target) {
    // For outputs of a few pixels, rounding would give a size below the output's.
    return std::max<std::int64_t>(target, static_cast<std::int64_t>(size * ratio * kTfCentreZoom));
  };
  return {centre_of_resized(image.width, resized(image.width, output.width), output.width),
          centre_of_resized(image.height, resized(image.height, output.height), output.height)};
}

/// tensorpack's GoogleNetRandomCropAndResize: 8 to 100 % of the area, aspect ratio uniform in 0.75
/// to 1.333, inverted with probability 1/2. After ten failed tries it takes the centre of the
/// image, resized until its shorter side is the output's. The filter stays inside a part that was
/// drawn.
Region tensorpack_random_crop(ImageSize image, const ImageShape& output, Random& random) {
  const std::int64_t width = image.width, height = image.height;
  const double area = static_cast<double>(width) * static_cast<double>(height);
  for (int i = 0; i < kTries; ++i) {
    const double target = area * random.uniform(kMinArea, kMaxArea);
    const double ratio = random.uniform(kMinRatio, kTensorpackMaxRatio);
    std::int64_t w = std::llround(std::sqrt(target * ratio));
    std::int64_t h = std::llround(std::sqrt(target / ratio));
    if (random.uniform() < 0.5) std::swap(w, h);
    if (w < 1 || w > width || h < 1 || h > height) continue;
    const std::int64_t left = place(width - w, random);
    const std::int64_t top = place(height - h, random);
    return {stretch_of(left, w), stretch_of(top, h)};
  }
  return tensorpack_centre(image, output, 1);
}

}  // namespace

Region padded_crop(ImageSize image, std::int32_t pad, Random& random) {
  const std::int64_t top = place(2 * std::int64_t{pad}, random);
  const std::int64_t left = place(2 * std::int64_t{pad}, random);
  return {stretch_of(left, image.width), stretch_of(top, image.height)};
}

Crop parse_crop(std::string_view component, std::string_view text) {
  return static_cast<Crop>(parse_choice(text == "centre" ? "center" : text, kCropValues,
                                        std::string(component) + ": option 'crop'"));
}

std::string_view name_of(Crop crop) { return kCropValues[static_cast<std::size_t>(crop)].name; }

Crop evaluation_crop(Crop crop) {
  if (crop == Crop::random) return Crop::centre;
  if (crop == Crop::tf_random || crop == Crop::tf_box) return Crop::tf_centre;
  return crop == Crop::tensorpack_random ? Crop::tensorpack_centre : crop;
}

Region choose_region(Crop crop, ImageSize image, const ImageShape& output, Random& random,
                     std::span<const ObjectBox> boxes) {
  switch (crop) {
    case Crop::random:
      return random_resized_crop(image, random);
    case Crop::centre:
      return centre_crop(image, output);
    case Crop::full:
      break;
    case Crop::tf_random:
      return tf_box_crop(image, {}, random);
    case Crop::tf_box:
      return tf_box_crop(image, boxes, random);
    case Crop::tf_centre:
      return tf_centre_crop(image, output);
    case Crop::tensorpack_random:
      return tensorpack_random_crop(image, output, random);
    case Crop::tensorpack_centre:
      return tensorpack_centre(image, output, kCentreZoom);
  }
  return whole_image(image);
}

}  // namespace penstock
