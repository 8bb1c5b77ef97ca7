// SPDX-License-Identifier: Apache-2.0
#include "bench/dataset/synthetic_photo.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/dataset/canvas.h"
#include "bench/dataset/textures.h"
#include "dataflow/error.h"

namespace penstock::dataset {
namespace {

struct Size {
  std::int32_t width = 500, height = 375;
};

/// Sizes as in ImageNet: most images are 500 wide, three in four are landscape, and few are much
/// larger.
Size draw_size(Random& random) {
  const auto whole = [](double pixels) { return static_cast<std::int32_t>(std::lround(pixels)); };
  const auto scaled = [&](double low, double high) {
    const double scale = random.uniform(low, high);
    return Size{whole(500 * scale), whole(375 * scale)};
  };
  Size size;
  const std::uint64_t percent = random.below(100);
  if (percent < 50) {
    size = {500, 375};
  } else if (percent < 70) {
    size = {500, random.below(2) == 0 ? 333 : 334};
  } else if (percent < 86) {
    size = {500, whole(random.uniform(280, 500))};
  } else if (percent < 94) {
    size = scaled(0.45, 0.95);
  } else if (percent < 98) {
    size = scaled(1.1, 1.4);
  } else {
    size = scaled(1.5, 2.1);
  }
  if (random.below(4) == 0) std::swap(size.width, size.height);
  return size;
}

/// Properties that differ between cameras and shots.
struct Camera {
  explicit Camera(Random& random)
      : exposure(uniform(random, 0.82F, 1.2F)),
        warmth(uniform(random, -0.06F, 0.06F)),
        contrast(uniform(random, 0.85F, 1.15F)),
        vignette(uniform(random, 0.0F, 0.35F)),
        light_x(uniform(random, -0.22F, 0.22F)),
        light_y(uniform(random, -0.22F, 0.22F)),
        blur(uniform(random, 0.0F, 0.8F)) {
    // Sums of uniform numbers are nearly normal, and powers of 2 of them nearly log-normal. They
    // produce the long right tail of file sizes.
    float sum = 0;
    for (int i = 0; i < 4; ++i) sum += uniform(random, -1, 1);
    detail = 0.047F * std::exp2(0.6F * sum);
    grain = 0.0155F * std::exp2(0.55F * sum);
  }
  float exposure, warmth, contrast, vignette, light_x, light_y, blur;
  float detail = 0;  ///< standard deviation of the fine texture of all surfaces, relative
  float grain = 0;   ///< standard deviation of the sensor's noise at middle grey
};

/// Adds light from one side, the lens's darkening towards the corners, and the fine texture of all
/// surfaces.
void light(Canvas& canvas, const Camera& camera, Random& random) {
  const std::vector<float> texture = fractal_field(canvas, 0.95F, random, 5);
  const Colour balance{camera.exposure * (1 + camera.warmth), camera.exposure,
                       camera.exposure * (1 - camera.warmth)};
  const float aspect_x = static_cast<float>(canvas.width) / canvas.unit();
  const float aspect_y = static_cast<float>(canvas.height) / canvas.unit();
  std::size_t index = 0;
  for (std::int32_t row = 0; row < canvas.height; ++row) {
    const float y = aspect_y * (static_cast<float>(row) / static_cast<float>(canvas.height) - 0.5F);
    for (std::int32_t column = 0; column < canvas.width; ++column, ++index) {
      const float x =
          aspect_x * (static_cast<float>(column) / static_cast<float>(canvas.width) - 0.5F);
      const float fall = 1 - camera.vignette * (x * x + y * y);
      const float gain = fall * (1 + camera.light_x * x + camera.light_y * y) *
                         (1 + camera.detail * texture[index]);
      Colour& pixel = canvas.rgb[index];
      pixel = {pixel.r * balance.r * gain, pixel.g * balance.g * gain, pixel.b * balance.b * gain};
    }
  }
}

/// The lens: mixes the sharp image with one filtered by the binomial (1 2 1)/4, along rows and then
/// along columns.
void blur(Canvas& canvas, float amount) {
  const float side = 0.25F * amount, middle = 1 - 2 * side;
  const auto width = static_cast<std::size_t>(canvas.width);
  const auto height = static_cast<std::size_t>(canvas.height);
  std::vector<Colour> before(width), above(width);
  for (std::size_t y = 0; y < height; ++y) {
    Colour* const line = canvas.rgb.data() + y * width;
    std::copy_n(line, width, before.begin());
    for (std::size_t x = 1; x + 1 < width; ++x) {
      line[x] = before[x] * middle + (before[x - 1] + before[x + 1]) * side;
    }
  }
  std::copy_n(canvas.rgb.begin(), width, above.begin());
  for (std::size_t y = 1; y + 1 < height; ++y) {
    Colour* const line = canvas.rgb.data() + y * width;
    for (std::size_t x = 0; x < width; ++x) {
      const Colour sharp = line[x];
      line[x] = sharp * middle + (above[x] + line[x + width]) * side;
      above[x] = sharp;
    }
  }
}

/// Approximately normal noise of mean 0 and standard deviation 1: the sum of four bytes of a random
/// word.
class Noise {
 public:
  explicit Noise(Random& random) : random_(random) {}
  float operator()() {
    if (left_ == 0) word_ = random_.bits();
    left_ = (left_ + 1) % 2;
    const std::uint64_t half = left_ == 1 ? word_ & 0xffffffffU : word_ >> 32;
    const std::uint64_t sum =
        (half & 0xffU) + ((half >> 8) & 0xffU) + ((half >> 16) & 0xffU) + (half >> 24);
    return (static_cast<float>(sum) - 510) / 147.8F;  // 4 bytes: variance 4 (256^2 - 1) / 12
  }

 private:
  Random& random_;
  std::uint64_t word_ = 0;
  int left_ = 0;
};

std::uint8_t to_byte(float value) {
  return static_cast<std::uint8_t>(std::clamp(255 * value + 0.5F, 0.0F, 255.0F));
}

/// The sensor: contrast, and noise that grows with the light and is partly common to the channels.
Photo expose(const Canvas& canvas, const Camera& camera, Random& random) {
  Photo photo{canvas.width, canvas.height, std::vector<std::uint8_t>(3 * canvas.pixels())};
  Noise noise(random);
  std::uint8_t* out = photo.rgb.data();
  for (const Colour& pixel : canvas.rgb) {
    const Colour c = pixel * camera.contrast + Colour{1, 1, 1} * (0.45F * (1 - camera.contrast));
    const float level = 0.33F * (c.r + c.g + c.b);
    const float grain = camera.grain * std::sqrt(0.3F + 1.4F * std::clamp(level, 0.0F, 1.0F));
    const float common = grain * noise(), red = 0.4F * grain * noise(),
                blue = 0.4F * grain * noise();
    *out++ = to_byte(c.r + common + red);
    *out++ = to_byte(c.g + common);
    *out++ = to_byte(c.b + common + blue);
  }
  return photo;
}

}  // namespace

Photo synthetic_photo(std::int32_t label, std::uint64_t seed, std::uint64_t split,
                      std::uint64_t index) {
  PENSTOCK_ASSERT(label >= 0 && static_cast<std::size_t>(label) < texture_count());
  Random random(seed, split, index);
  const Size size = draw_size(random);
  const Camera camera(random);
  Canvas canvas(size.width, size.height);
  paint_texture(canvas, static_cast<std::size_t>(label), random);
  light(canvas, camera, random);
  blur(canvas, camera.blur);
  return expose(canvas, camera, random);
}

}  // namespace penstock::dataset
