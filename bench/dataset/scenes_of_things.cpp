// SPDX-License-Identifier: Apache-2.0
// Paints balls, flowers, fur and grass: things drawn over each other, the farthest first.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "bench/dataset/scenes.h"

namespace penstock::dataset {
namespace {

constexpr float kTurn = 2 * std::numbers::pi_v<float>;

/// Calls draw(x, y, pixel, index) for the pixels of the square around a centre. x and y are
/// relative to the centre, in radii. All other lengths are in pixels.
template <typename Draw>
void paint_around(Canvas& canvas, float centre_x, float centre_y, float radius, float reach,
                  Draw draw) {
  const auto edge = [](float value, std::int32_t limit) {
    return std::clamp(static_cast<std::int32_t>(std::lround(value)), 0, limit);
  };
  const float extent = radius * reach;
  const std::int32_t left = edge(centre_x - extent, canvas.width);
  const std::int32_t right = edge(centre_x + extent, canvas.width);
  const std::int32_t bottom = edge(centre_y + extent, canvas.height);
  for (std::int32_t y = edge(centre_y - extent, canvas.height); y < bottom; ++y) {
    for (std::int32_t x = left; x < right; ++x) {
      const auto index = static_cast<std::size_t>(y) * static_cast<std::size_t>(canvas.width) +
                         static_cast<std::size_t>(x);
      draw((static_cast<float>(x) - centre_x) / radius, (static_cast<float>(y) - centre_y) / radius,
           canvas.rgb[index], index);
    }
  }
}

struct Place {
  float x = 0, y = 0, radius = 0;
};

/// Random places over the whole canvas. The upper places are farther away, so they come first and
/// are smaller.
std::vector<Place> scatter(const Canvas& canvas, std::size_t count, float smallest, float largest,
                           Random& random) {
  std::vector<Place> places(count);
  for (Place& place : places) {
    place.x = uniform(random, 0, static_cast<float>(canvas.width));
    place.y = uniform(random, 0, static_cast<float>(canvas.height));
    const float nearness = 0.75F + 0.5F * place.y / static_cast<float>(canvas.height);
    place.radius = canvas.unit() * nearness * uniform(random, smallest, largest);
  }
  std::stable_sort(places.begin(), places.end(),
                   [](const Place& a, const Place& b) { return a.y < b.y; });
  return places;
}

void paint_ball(Canvas& canvas, const Place& ball, Colour colour, float light,
                const std::vector<float>& mottle) {
  const float soft = 1.5F / ball.radius;
  paint_around(canvas, ball.x + 0.35F * light * ball.radius, ball.y + 0.75F * ball.radius,
               ball.radius, 1.4F, [](float x, float y, Colour& pixel, std::size_t) {
                 const float distance = std::hypot(x, 2.4F * y);
                 pixel = pixel * (1 - 0.6F * smoothstep(1.3F, 0.3F, distance));
               });
  paint_around(canvas, ball.x, ball.y, ball.radius, 1.1F,
               [&](float x, float y, Colour& pixel, std::size_t index) {
                 const float distance = std::hypot(x, y);
                 if (distance > 1 + soft) return;
                 const float depth = std::sqrt(std::max(0.0F, 1 - x * x - y * y));
                 const float facing = -0.45F * light * x - 0.55F * y + 0.70F * depth;
                 const float glow = smoothstep(0.93F, 1.0F, facing);
                 const float shade = 0.28F + 0.8F * std::max(0.0F, facing) + 0.06F * mottle[index];
                 const Colour lit = colour * shade + Colour{0.75F, 0.75F, 0.7F} * glow;
                 pixel = mix(pixel, lit, smoothstep(1 + soft, 1 - soft, distance));
               });
}

void paint_flower(Canvas& canvas, const Place& flower, Colour colour, Random& random) {
  const float petals = static_cast<float>(5 + random.below(4));
  const float start = uniform(random, 0, kTurn), notch = uniform(random, 0.3F, 0.5F);
  const float soft = 1.5F / flower.radius, squash = uniform(random, 0.8F, 1.25F);
  const Colour heart = hsv(uniform(random, 0.11F, 0.16F), 0.9F, 0.9F);
  paint_around(canvas, flower.x, flower.y, flower.radius, 1.3F,
               [&](float x, float y, Colour& pixel, std::size_t) {
                 const float distance = std::hypot(x, y * squash);
                 if (distance > 1 + soft) return;
                 const float angle = petals * (std::atan2(y * squash, x) + start) / 2;
                 const float lobe = std::abs(std::cos(angle));
                 const float rim = 1 - notch + notch * std::sqrt(lobe);
                 const float cover = smoothstep(rim + soft, rim - soft, distance);
                 const float veins = 0.9F + 0.1F * std::cos(angle * 14);
                 const float shade = (0.45F + 0.55F * lobe) * (0.6F + 0.5F * distance) * veins;
                 const float core = smoothstep(0.24F, 0.18F, distance);
                 pixel =
                     mix(pixel, mix(colour * shade, heart * (1 - 1.5F * distance), core), cover);
               });
}

}  // namespace

void paint_balls(Canvas& canvas, Random& random) {
  const std::vector<float> cloth = fractal_field(canvas, 0.75F, random);
  const std::vector<float> mottle = fractal_field(canvas, 0.9F, random, 5);
  const Colour ground = hsv(uniform(random, 0.52F, 0.66F), uniform(random, 0.08F, 0.3F),
                            uniform(random, 0.35F, 0.65F));
  const float fall = uniform(random, -0.2F, 0.25F);
  paint_pixels(canvas, [&](float, float y, std::size_t i) {
    return ground * (1 + 0.13F * cloth[i] + fall * (y - 0.5F));
  });
  const float light = random.below(2) == 0 ? 1.0F : -1.0F;
  const float hue = uniform(random, -0.02F, 0.06F);
  for (const Place& ball : scatter(canvas, 9 + random.below(10), 0.09F, 0.2F, random)) {
    paint_ball(canvas, ball,
               hsv(hue + uniform(random, -0.03F, 0.05F), uniform(random, 0.75F, 0.95F),
                   uniform(random, 0.7F, 1.0F)),
               light, mottle);
  }
}

void paint_flowers(Canvas& canvas, Random& random) {
  const std::vector<float> leaves = fractal_field(canvas, 0.85F, random);
  const Colour shadow = hsv(uniform(random, 0.27F, 0.37F), 0.6F, 0.16F);
  paint_pixels(canvas,
               [&](float, float, std::size_t i) { return shadow * (1 + 0.35F * leaves[i]); });
  const float unit = canvas.unit();
  for (const Place& leaf : scatter(canvas, 260, 0.06F, 0.16F, random)) {
    const float angle = uniform(random, 0, kTurn);
    const Colour green = hsv(uniform(random, 0.25F, 0.38F), 0.6F, uniform(random, 0.14F, 0.45F));
    paint_stroke(
        canvas, {leaf.x, leaf.y, std::cos(angle) * leaf.radius, std::sin(angle) * leaf.radius,
                 0.12F * leaf.radius, unit * uniform(random, 0.015F, 0.045F), green, green * 1.5F});
  }
  const float hue = uniform(random, 0.82F, 0.95F);
  for (const Place& flower : scatter(canvas, 12 + random.below(12), 0.09F, 0.19F, random)) {
    paint_flower(canvas, flower,
                 hsv(hue + uniform(random, -0.03F, 0.03F), uniform(random, 0.35F, 0.8F),
                     uniform(random, 0.8F, 1.05F)),
                 random);
  }
}

void paint_fur(Canvas& canvas, Random& random) {
  const std::vector<float> warp = fractal_field(canvas, 0.35F, random);
  const std::vector<float> flow = fractal_field(canvas, 0.4F, random);
  const Colour pale = hsv(uniform(random, 0.06F, 0.1F), uniform(random, 0.55F, 0.8F),
                          uniform(random, 0.75F, 0.95F));
  const Colour dark = hsv(0.06F, 0.3F, uniform(random, 0.06F, 0.14F));
  const float direction = uniform(random, 0, kTurn), stripes = uniform(random, 18, 32);
  const float across_x = std::cos(direction) * stripes, across_y = std::sin(direction) * stripes;
  const float bend = uniform(random, 1.2F, 2.2F);
  const auto colour_at = [&](float x, float y, std::size_t i) {
    const float phase = across_x * x + across_y * y + bend * warp[i];
    return mix(pale, dark, smoothstep(0.1F, 0.5F, std::sin(phase)));
  };
  paint_pixels(canvas, [&](float x, float y, std::size_t i) { return colour_at(x, y, i) * 0.6F; });
  const float unit = canvas.unit();
  for (const Place& hair : scatter(canvas, 9000, 0.04F, 0.09F, random)) {
    const auto column =
        std::min(static_cast<std::size_t>(hair.x), static_cast<std::size_t>(canvas.width) - 1);
    const auto row =
        std::min(static_cast<std::size_t>(hair.y), static_cast<std::size_t>(canvas.height) - 1);
    const std::size_t i = row * static_cast<std::size_t>(canvas.width) + column;
    const float angle = direction + 0.4F * flow[i] + uniform(random, -0.25F, 0.25F);
    const Colour colour = colour_at(hair.x / unit, hair.y / unit, i) * uniform(random, 0.55F, 1.2F);
    paint_stroke(canvas,
                 {hair.x, hair.y, std::cos(angle) * hair.radius, std::sin(angle) * hair.radius,
                  0.1F * hair.radius, 0.006F * unit, colour * 0.8F, colour * 1.1F});
  }
}

void paint_grass(Canvas& canvas, Random& random) {
  const std::vector<float> soil = fractal_field(canvas, 0.8F, random);
  const float hue = uniform(random, 0.2F, 0.31F), wind = uniform(random, -0.6F, 0.6F);
  const Colour ground = hsv(hue, 0.6F, 0.16F);
  paint_pixels(canvas, [&](float, float, std::size_t i) { return ground * (1 + 0.4F * soil[i]); });
  const float height = uniform(random, 1.4F, 2.6F), thin = uniform(random, 0.007F, 0.013F);
  const float unit = canvas.unit();
  for (const Place& blade : scatter(canvas, 3000, 0.05F, 0.13F, random)) {
    const float length = height * blade.radius;
    const float lean = wind + uniform(random, -0.5F, 0.5F);
    const Colour green = hsv(hue + uniform(random, -0.05F, 0.04F), uniform(random, 0.5F, 0.85F),
                             uniform(random, 0.25F, 0.75F));
    paint_stroke(canvas, {blade.x, blade.y + 0.5F * length, lean * length, -length,
                          0.25F * lean * length, unit * thin, green * 0.45F, green * 1.25F});
  }
}

}  // namespace penstock::dataset
