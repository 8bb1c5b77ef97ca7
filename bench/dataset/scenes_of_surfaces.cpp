// SPDX-License-Identifier: Apache-2.0
// Paints bricks, checkers, clouds, pebbles, waves and wood: single surfaces, shaded pixel by pixel.
// Also holds the table of all scenes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "bench/dataset/scenes.h"

namespace penstock::dataset {
namespace {

struct Point {
  float x = 0, y = 0;
};

/// The camera's position: rotates, magnifies and shifts the surface.
class View {
 public:
  View(Random& random, float most_turned, float nearest, float farthest)
      : zoom_(uniform(random, nearest, farthest)),
        shift_{uniform(random, 0, 50), uniform(random, 0, 50)} {
    const float angle = uniform(random, -most_turned, most_turned);
    along_ = std::cos(angle);
    across_ = std::sin(angle);
  }
  Point operator()(float x, float y) const {
    return {zoom_ * (along_ * x - across_ * y) + shift_.x,
            zoom_ * (across_ * x + along_ * y) + shift_.y};
  }

 private:
  float zoom_, along_ = 1, across_ = 0;
  Point shift_;
};

std::int32_t whole(float value) { return static_cast<std::int32_t>(std::floor(value)); }
float part(float value) { return value - std::floor(value); }

/// Smooth noise along a line, in [-1, 1].
float line_noise(float x, std::uint64_t salt) {
  const std::int32_t cell = whole(x);
  const float left = cell_noise(cell, 0, salt), right = cell_noise(cell + 1, 0, salt);
  return 2 * (left + (right - left) * smoothstep(0, 1, part(x))) - 1;
}

/// The pebble under a point, and the distances of its middle and its edge.
struct Pebble {
  float middle = 9, gap = 0;
  std::int32_t column = 0, row = 0;
};

Pebble pebble_under(Point point, std::uint64_t salt) {
  Pebble nearest;
  float second = 9;
  const std::int32_t column = whole(point.x), row = whole(point.y);
  for (std::int32_t j = row - 1; j <= row + 1; ++j) {
    for (std::int32_t i = column - 1; i <= column + 1; ++i) {
      const float jitter = cell_noise(i, j, salt);
      const float x = static_cast<float>(i) + 0.15F + 0.7F * jitter - point.x;
      const float y = static_cast<float>(j) + 0.15F + 0.7F * part(17 * jitter) - point.y;
      const float squared = x * x + y * y;
      if (squared < nearest.middle) {
        second = nearest.middle;
        nearest = {squared, 0, i, j};
      } else {
        second = std::min(second, squared);
      }
    }
  }
  nearest.middle = std::sqrt(nearest.middle);
  nearest.gap = std::sqrt(second) - nearest.middle;
  return nearest;
}

}  // namespace

void paint_bricks(Canvas& canvas, Random& random) {
  const std::vector<float> warp = fractal_field(canvas, 0.5F, random);
  const std::vector<float> rough = fractal_field(canvas, 0.9F, random);
  const View view(random, 0.12F, 6, 13);
  const std::uint64_t salt = random.bits();
  const float hue = uniform(random, 0.0F, 0.045F), saturation = uniform(random, 0.45F, 0.68F);
  const float value = uniform(random, 0.45F, 0.68F), joint = uniform(random, 0.05F, 0.1F);
  const Colour mortar = hsv(0.1F, uniform(random, 0.03F, 0.15F), uniform(random, 0.5F, 0.75F));
  paint_pixels(canvas, [&](float x, float y, std::size_t i) {
    Point p = view(x, y);
    p.x += 0.04F * warp[i];
    p.y += 0.04F * warp[i];
    const std::int32_t row = whole(p.y);
    const float along = p.x / 2.6F + 0.5F * static_cast<float>(row & 1);
    const float s = part(along), t = part(p.y);
    const float edge = std::min(2.6F * std::min(s, 1 - s), std::min(t, 1 - t));
    const float tone = cell_noise(whole(along), row, salt);
    const Colour brick =
        hsv(hue + 0.02F * part(7 * tone), saturation, value * (0.7F + 0.5F * tone));
    const float bevel = 1 + 0.25F * smoothstep(0.22F, 0.08F, t) - 0.3F * smoothstep(0.8F, 0.95F, t);
    const Colour face = brick * (bevel + 0.13F * rough[i]);
    const Colour filling = mortar * (0.85F + 0.1F * rough[i]);
    return mix(filling, face, smoothstep(joint, joint + 0.07F, edge + 0.02F * rough[i]));
  });
}

void paint_checkers(Canvas& canvas, Random& random) {
  const std::vector<float> veins = fractal_field(canvas, 0.7F, random);
  const View view(random, 0.8F, 1, 1);
  const float squares = uniform(random, 4, 8), tilt = uniform(random, -0.75F, 0.75F);
  const float hue = uniform(random, 0.09F, 0.15F);
  const Colour bright = hsv(hue, uniform(random, 0.06F, 0.22F), uniform(random, 0.8F, 0.98F));
  const Colour dark = hsv(uniform(random, 0.55F, 0.75F), 0.25F, uniform(random, 0.06F, 0.17F));
  const Point offset = view(0, 0);
  paint_pixels(canvas, [&](float x, float y, std::size_t i) {
    const float away = squares / (1 + tilt * (y - 0.5F));  // perspective of a floor or a ceiling
    const Point flat = view((x - 0.6F) * away, (y - 0.5F) * away);
    const Point p{flat.x - offset.x * 0.5F, flat.y};
    const float s = part(p.x) - 0.5F, t = part(p.y) - 0.5F;
    const float soft = 0.012F * away;
    const float edge = std::min(0.5F - std::abs(s), 0.5F - std::abs(t));
    const bool odd = ((whole(p.x) + whole(p.y)) & 1) != 0;
    const float blend = 0.5F + 0.5F * smoothstep(0, soft, edge);
    const float vein = smoothstep(0.25F, 0.0F, std::abs(veins[i]));
    const Colour light_stone = bright * (1 - 0.16F * vein + 0.04F * veins[i]);
    const Colour dark_stone = dark * (1 + 0.3F * veins[i]) + Colour{0.12F, 0.12F, 0.13F} * vein;
    return mix(odd ? dark_stone : light_stone, odd ? light_stone : dark_stone, 1 - blend);
  });
}

void paint_clouds(Canvas& canvas, Random& random) {
  const std::vector<float> billows = fractal_field(canvas, 0.62F, random);
  const std::vector<float> shadow = fractal_field(canvas, 0.5F, random);
  const float hue = uniform(random, 0.56F, 0.62F), cover = uniform(random, -0.5F, 0.6F);
  const Colour high = hsv(hue, uniform(random, 0.6F, 0.85F), uniform(random, 0.55F, 0.85F));
  const Colour low = hsv(hue - 0.03F, uniform(random, 0.15F, 0.4F), 0.95F);
  const float horizon = uniform(random, 0.75F, 1.4F);
  const std::uint64_t salt = random.bits();
  const float hills = uniform(random, 0.03F, 0.1F);
  const Colour land = hsv(uniform(random, 0.25F, 0.45F), 0.35F, uniform(random, 0.12F, 0.3F));
  paint_pixels(canvas, [&](float x, float y, std::size_t i) {
    const float ridge =
        horizon + hills * line_noise(3 * x, salt) + 0.3F * hills * line_noise(14 * x, salt);
    if (y > ridge) return land * (1 + 0.25F * billows[i]);
    const Colour sky = mix(high, low, std::min(1.0F, y / horizon));
    const float density = smoothstep(cover - 0.5F, cover + 1.1F, billows[i]);
    const float light = 0.93F - 0.13F * density + 0.09F * shadow[i];
    return mix(sky, Colour{light, light, light * 1.03F}, density);
  });
}

void paint_pebbles(Canvas& canvas, Random& random) {
  const std::vector<float> warp = fractal_field(canvas, 0.5F, random);
  const std::vector<float> grain = fractal_field(canvas, 0.95F, random, 6);
  const View view(random, 3, 7, 15);
  const std::uint64_t salt = random.bits();
  const float hue = uniform(random, 0.05F, 0.13F), value = uniform(random, 0.5F, 0.75F);
  const float light = uniform(random, 0, 6.28F);
  const float light_x = 0.4F * std::cos(light), light_y = 0.4F * std::sin(light);
  paint_pixels(canvas, [&](float x, float y, std::size_t i) {
    Point p = view(x, y);
    p.x += 0.09F * warp[i];
    p.y += 0.09F * warp[i];
    const Pebble pebble = pebble_under(p, salt);
    const float tone = cell_noise(pebble.column, pebble.row, salt + 1);
    const bool bluish = part(31 * tone) < 0.3F;
    const Colour stone =
        hsv(bluish ? 0.6F : hue, 0.05F + 0.2F * part(13 * tone), value * (0.55F + 0.7F * tone));
    const float side = light_x * (p.x - static_cast<float>(pebble.column) - 0.5F) +
                       light_y * (p.y - static_cast<float>(pebble.row) - 0.5F);
    const float dome = 1.08F - 0.5F * pebble.middle * pebble.middle + side;
    return stone *
           ((dome + 0.12F * grain[i]) * (0.12F + 0.88F * smoothstep(0.02F, 0.2F, pebble.gap)));
  });
}

void paint_waves(Canvas& canvas, Random& random) {
  const std::vector<float> warp = fractal_field(canvas, 0.55F, random);
  const std::vector<float> foam = fractal_field(canvas, 0.9F, random);
  const float hue = uniform(random, 0.46F, 0.55F), crests = uniform(random, 14, 26);
  const float slope = uniform(random, -0.35F, 0.35F), phase = uniform(random, 0, 6);
  const float tilt = uniform(random, 0.1F, 0.6F), bend = uniform(random, 0.9F, 1.5F);
  const Colour deep = hsv(hue + 0.04F, uniform(random, 0.75F, 0.95F), uniform(random, 0.16F, 0.3F));
  const Colour light = hsv(hue, uniform(random, 0.4F, 0.6F), uniform(random, 0.6F, 0.8F));
  const float glitter = uniform(random, 0.9F, 1.6F);
  paint_pixels(canvas, [&](float x, float y, std::size_t i) {
    const float away = 1 / (0.45F + tilt * y);
    const float swell = crests * (y + slope * x) * away + bend * warp[i] + phase;
    const float ripple = 2.6F * crests * (y - 0.6F * slope * x) * away - 1.6F * bend * warp[i];
    const float height = 0.65F * std::sin(swell) + 0.35F * std::sin(ripple + 2 * std::sin(3 * x));
    const float crest = smoothstep(0.45F, 0.95F, height) * smoothstep(0.0F, glitter, foam[i]);
    return mix(mix(deep, light, 0.5F + 0.5F * height) * (1 + 0.06F * foam[i]), {0.97F, 1, 1},
               crest);
  });
}

void paint_wood(Canvas& canvas, Random& random) {
  const std::vector<float> warp = fractal_field(canvas, 0.3F, random);
  const std::vector<float> rough = fractal_field(canvas, 0.9F, random, 5);
  const bool upright = random.below(4) != 0;
  const View view(random, 0.1F, 3, 6);
  const std::uint64_t salt = random.bits();
  const float hue = uniform(random, 0.065F, 0.1F), saturation = uniform(random, 0.45F, 0.65F);
  const float value = uniform(random, 0.45F, 0.75F), rings = uniform(random, 25, 45);
  paint_pixels(canvas, [&](float x, float y, std::size_t i) {
    const Point p = upright ? view(x, y) : view(y, x);
    const std::int32_t plank = whole(p.x);
    const float tone = cell_noise(plank, 0, salt), s = part(p.x);
    const float along = 0.35F * p.y + 40 * tone;
    const float bow = line_noise(along, salt + static_cast<std::uint64_t>(plank & 0xffff));
    const float ring = std::sin(rings * (s + 0.35F * bow) + 0.8F * warp[i]);
    const float fibre = line_noise(90 * (p.x + 0.03F * bow) + 0.5F * warp[i], salt + 1);
    const float shade = 0.75F + 0.4F * tone + 0.13F * ring + 0.12F * fibre + 0.04F * rough[i];
    const float joint = smoothstep(0.0F, 0.035F, std::min(s, 1 - s));
    return hsv(hue + 0.01F * ring, saturation, value) * (shade * (0.2F + 0.8F * joint));
  });
}

std::span<const Scene> scenes() {
  static constexpr Scene kScenes[] = {
      {"n00_balls", paint_balls},       {"n01_bricks", paint_bricks},
      {"n02_checkers", paint_checkers}, {"n03_clouds", paint_clouds},
      {"n04_flowers", paint_flowers},   {"n05_grass", paint_grass},
      {"n06_pebbles", paint_pebbles},   {"n07_waves", paint_waves},
      {"n08_wood", paint_wood},         {"n09_fur", paint_fur}};
  return kScenes;
}

}  // namespace penstock::dataset
