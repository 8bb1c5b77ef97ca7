// SPDX-License-Identifier: Apache-2.0
#include "feeders/pixel_options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "dataflow/error.h"

namespace penstock {
namespace {

constexpr std::pair<std::string_view, DType> kPixels[] = {
    {"u8", DType::u8}, {"f16", DType::f16}, {"bf16", DType::bf16}, {"f32", DType::f32}};

}  // namespace

std::string_view pixel_type_name(DType type) {
  return std::ranges::find_if(kPixels, [&](const auto& pair) { return pair.second == type; })
      ->first;
}

void shape_pixels(const Options& options, BatchSpec& batches) {
  const std::string& text = options.text("pixels");
  const auto* const known =
      std::ranges::find_if(kPixels, [&](const auto& pair) { return pair.first == text; });
  if (known == std::end(kPixels)) {
    throw ConfigError("option 'pixels' is '{}'; expected u8, f16, bf16 or f32", text);
  }
  batches.pixel = known->second;
  batches.normalised = batches.pixel != DType::u8;
  if (options.given("planar")) batches.planar = options.flag("planar");
}

void shape_arrays(std::string_view text, std::string_view what, BatchSpec& batches) {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 36;
  const std::size_t end = std::min(text.find('x'), text.size());
  const auto refuse = [&] {
    throw ConfigError("{} is '{}'; expected NxBYTESB, such as 16x1048576B", what, text);
  };
  if (end == text.size() || !text.ends_with('B')) refuse();
  const std::int64_t samples = parse_integer(text.substr(0, end), what),
                     bytes = parse_integer(text.substr(end + 1, text.size() - end - 2), what);
  if (samples < 1 || samples > INT32_MAX || bytes < 1 || bytes > kMostBytes) refuse();
  const std::int64_t each = (bytes + samples - 1) / samples;
  if (each > INT32_MAX) {
    throw ConfigError("a sample of a batch has {} bytes; expected less than 2 GiB", each);
  }
  batches.opaque = true;
  batches.images = static_cast<std::int32_t>(samples);
  batches.image = {1, 1, static_cast<std::int32_t>(each)};
  batches.pixel = DType::u8;
  batches.planar = false;
}

std::array<std::int32_t, 4> pixel_lengths(const BatchSpec& spec) {
  const ImageShape& image = spec.image;
  if (spec.planar) return {spec.images, image.channels, image.height, image.width};
  return {spec.images, image.height, image.width, image.channels};
}

std::string describe_pixels(std::optional<DType> type, std::span<const std::int64_t> lengths) {
  return fmt::format("{} [{}]", type ? pixel_type_name(*type) : "?", fmt::join(lengths, ","));
}

std::string describe_pixels(const BatchSpec& spec) {
  const std::array<std::int32_t, 4> lengths = pixel_lengths(spec);
  return describe_pixels(spec.pixel, std::vector<std::int64_t>(lengths.begin(), lengths.end()));
}

std::string flags_for_pixels(std::string_view feeder, std::optional<DType> type,
                             std::span<const std::int64_t> shape, const BatchSpec& spec) {
  if (!type || shape.size() != 4) return {};
  const bool planar = shape[3] != spec.image.channels && shape[1] == spec.image.channels;
  const std::int64_t height = shape[planar ? 2 : 1], width = shape[planar ? 3 : 2];
  if (!planar && shape[3] != spec.image.channels) return {};
  const bool resizes = height != spec.image.height || width != spec.image.width;
  if (resizes && height != width) return {};  // --image-size is for squares
  std::vector<std::string> flags;
  if (shape[0] != spec.images) flags.push_back(fmt::format("--batch-size {}", shape[0]));
  if (resizes) flags.push_back(fmt::format("--image-size {}", height));
  if (spec.planar && !planar) flags.push_back(std::string("--data-format ").append("NHWC"));
  if (*type != spec.pixel || planar != spec.planar) {
    flags.push_back(fmt::format("{}:pixels={}{}", feeder, pixel_type_name(*type),
                                planar ? ",planar=true" : ""));
  }
  std::string text;
  for (std::size_t i = 0; i < flags.size(); ++i) {
    if (i > 0) text.append(i + 1 == flags.size() ? " and " : ", ");
    text.append(flags[i]);
  }
  return text;
}

}  // namespace penstock
