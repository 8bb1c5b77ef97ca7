// SPDX-License-Identifier: Apache-2.0
// Handles pixels that need no decoding. It copies them if they have the batch's size, and otherwise
// resamples them like decoded images. On the way it interleaves planes, changes BGR to RGB, and
// turns grey into three equal channels.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>

#include "dataflow/decoder.h"
#include "dataflow/error.h"
#include "dataflow/images/crop.h"
#include "dataflow/images/resample.h"

namespace penstock {
namespace {

constexpr OptionSpec kOptions[] = {
    {"crop", "auto",
     "auto (none if the image has the batch's size, else random), auto-center (none, else center), "
     "random, center, full, or padN such as pad4 (pad N black pixels on each side, then crop at "
     "random)"},
    {"flip", "", "mirror half of the images at random; default: true if the crop is random"},
};

constexpr std::int32_t kMaxPad = 256;

/// The value of the option `crop`.
struct CropRule {
  Crop crop = Crop::random;
  bool unless_size_fits = false;
  std::int32_t pad = 0;  ///< if above 0, `crop` is not used
};

CropRule parse_rule(const std::string& text) {
  if (text == "auto") return {Crop::random, true};
  if (text == "auto-center") return {Crop::centre, true};
  if (!text.starts_with("pad")) return {parse_crop("raw", text)};
  const std::int32_t pad = parse_number<std::int32_t>(std::string_view(text).substr(3)).value_or(0);
  if (pad >= 1 && pad <= kMaxPad) return {.pad = pad};
  throw ConfigError("raw: option 'crop' is '{}'; expected pad1 to pad{}", text, kMaxPad);
}

/// True if the part consists of whole pixels, as many as the batch has.
bool needs_no_filter(const Region& region, const ImageShape& output) {
  const auto fits = [](const Stretch& stretch, std::int32_t outputs) {
    return stretch.length == outputs && stretch.begin == static_cast<std::int32_t>(stretch.begin);
  };
  return fits(region.columns, output.width) && fits(region.rows, output.height);
}

/// An image with a black border. Coordinates include the border.
class PaddedImage {
 public:
  PaddedImage(const PixelLayout& layout, const std::byte* pixels, std::int32_t pad)
      : width_(layout.width), height_(layout.height), pad_(pad) {
    const std::ptrdiff_t plane =
        layout.planar ? std::ptrdiff_t{layout.width} * layout.height : std::ptrdiff_t{1};
    step_ = layout.planar ? 1 : layout.channels;
    for (std::int32_t c = 0; c < 3; ++c) {
      const std::int32_t channel = layout.channels == 1 ? 0 : (layout.bgr ? 2 - c : c);
      first_[static_cast<std::size_t>(c)] = pixels + channel * plane;
    }
  }

  /// Writes pixels [left, left + width) of a row, as RGB in steps of `Step` bytes.
  template <std::ptrdiff_t Step>
  void write_row(std::int32_t row, std::int32_t left, std::int32_t width, std::byte* to) const {
    const std::int32_t y = row - pad_;
    const std::int32_t before = std::clamp(pad_ - left, 0, width);
    const std::int32_t inside =
        y < 0 || y >= height_ ? 0 : std::clamp(pad_ + width_ - left - before, 0, width - before);
    if (inside < width) std::memset(to, 0, static_cast<std::size_t>(width * Step));
    const std::ptrdiff_t at =
        (std::ptrdiff_t{y} * width_ + (left + before - pad_)) * std::ptrdiff_t{step_};
    if (inside > 0) copy<Step>(at, inside, to + before * Step);
  }

 private:
  template <std::ptrdiff_t Step>
  void copy(std::ptrdiff_t at, std::int32_t count, std::byte* to) const {
    const std::byte *red = first_[0] + at, *green = first_[1] + at, *blue = first_[2] + at;
    if (Step == 3 && step_ == 3 && green == red + 1) {
      std::memcpy(to, red, static_cast<std::size_t>(count) * 3);
      return;
    }
    for (std::int32_t x = 0; x < count; ++x, to += Step) {
      to[0] = red[x * step_];
      to[1] = green[x * step_];
      to[2] = blue[x * step_];
    }
  }

  std::int32_t width_, height_, pad_, step_ = 0;
  std::array<const std::byte*, 3> first_{};  // first bytes of red, green and blue
};

void mirror(std::byte* line, std::int32_t width) {
  for (std::byte *left = line, *right = line + 3 * (width - 1); left < right; left += 3, right -= 3)
    std::swap_ranges(left, left + 3, right);
}

class RawDecoder final : public Decoder {
 public:
  explicit RawDecoder(const Options& options)
      : rule_(parse_rule(options.text("crop"))),
        flip_(options.given("flip") ? std::optional(options.flag("flip")) : std::nullopt) {}

  void decode(const Sample& sample, const ImageView& row, Random& random) override {
    PENSTOCK_ASSERT(row.dtype == DType::u8 && row.shape.channels == 3);
    check(sample);
    const ImageSize size{sample.layout.width, sample.layout.height};
    const Region region = choose(size, row.shape, random);
    const bool mirrored = flips(size, row.shape) && random.uniform() < 0.5;
    const PaddedImage image(sample.layout, sample.content().data(), rule_.pad);
    if (rule_.pad == 0 && !mirrored && is_row(sample.layout, region, row)) {
      std::memcpy(row.data, sample.content().data(), sample.content().size());
    } else if (needs_no_filter(region, row.shape)) {
      copy(image, region, mirrored, row);
    } else {
      resample(image, region, mirrored, row);
    }
  }

 private:
  static void check(const Sample& sample) {
    const PixelLayout& layout = sample.layout;
    std::string problem;
    if (layout.empty()) {
      problem = "it is an encoded image";
    } else if (layout.width < 1 || layout.height < 1 ||
               (layout.channels != 1 && layout.channels != 3) ||
               layout.bytes() != sample.content().size()) {
      problem = fmt::format("there are {} bytes for {}x{}x{} pixels", sample.content().size(),
                            layout.height, layout.width, layout.channels);
    }
    if (problem.empty()) return;
    throw DataError(
        "copying the pixels of '{}' (sample {}): {}; expected one byte for each of one or three "
        "channels; use a source that gives such pixels, as queue:decode=raw makes one",
        sample.file, sample.index, problem);
  }

  bool keeps_size(ImageSize size, const ImageShape& output) const noexcept {
    return rule_.unless_size_fits && size.width == output.width && size.height == output.height;
  }

  bool flips(ImageSize size, const ImageShape& output) const noexcept {
    if (flip_) return *flip_;
    return rule_.pad > 0 || (rule_.crop == Crop::random && !keeps_size(size, output));
  }

  Region choose(ImageSize size, const ImageShape& output, Random& random) const {
    if (rule_.pad > 0) return padded_crop(size, rule_.pad, random);
    return choose_region(keeps_size(size, output) ? Crop::full : rule_.crop, size, output, random);
  }

  /// True if the stored pixels are exactly those of the row.
  static bool is_row(const PixelLayout& layout, const Region& region, const ImageView& row) {
    return layout == PixelLayout{row.shape.width, row.shape.height} && region.columns.begin == 0 &&
           region.rows.begin == 0 && row.row_bytes == 3 * std::ptrdiff_t{layout.width};
  }

  static void copy(const PaddedImage& image, const Region& region, bool mirrored,
                   const ImageView& row) {
    const auto left = static_cast<std::int32_t>(region.columns.begin),
               top = static_cast<std::int32_t>(region.rows.begin);
    for (std::int32_t y = 0; y < row.shape.height; ++y) {
      std::byte* const line = row.data + y * row.row_bytes;
      image.write_row<3>(top + y, left, row.shape.width, line);
      if (mirrored) mirror(line, row.shape.width);
    }
  }

  void resample(const PaddedImage& image, const Region& region, bool mirrored,
                const ImageView& row) {
    resampler_.begin(region.columns, region.rows, mirrored, row);
    const PixelRange columns = resampler_.columns();
    resampler_.run([&](std::int32_t y, std::uint8_t* to) {
      image.write_row<4>(y, columns.first, columns.end - columns.first,
                         reinterpret_cast<std::byte*>(to));
    });
  }

  const CropRule rule_;
  const std::optional<bool> flip_;
  Resampler resampler_;
};

std::unique_ptr<Decoder> make(const Options& options) {
  return std::make_unique<RawDecoder>(options);
}

}  // namespace

extern constinit const DecoderEntry raw_decoder{
    .name = "raw",
    .summary = "pixels without compression: copied, or cropped and resized",
    .options = kOptions,
    .make = make,
};

}  // namespace penstock
