// SPDX-License-Identifier: Apache-2.0
#include "bench/dataset/textures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

namespace penstock::dataset {
namespace {

constexpr float kTurn = 2 * std::numbers::pi_v<float>;

struct Range {
  float low = 0, high = 0;
  float draw(Random& random) const { return uniform(random, low, high); }
};

/// How a surface is divided into pieces: tiles in rows, or cells around jittered points.
enum class Division : std::uint8_t { none, tiles, cells };

struct Layout {
  Division division = Division::none;
  Range pieces{1, 1};      ///< columns of pieces along the shorter side
  float stretch = 1;       ///< height of a piece over its width
  float gap = 0.02F;       ///< half of the distance between pieces, in pieces
  float radius = 9;        ///< largest radius of a cell, in pieces
  float petals = 0;        ///< lobes of the outline of a cell
  bool chequered = false;  ///< every second tile shows the ground; else every second row is shifted
};

struct Stripes {
  Range count{0, 0};  ///< along the shorter side
  float depth = 0;    ///< 1: the ground shows between stripes; 0: no stripes
  float soft = 0.5F;  ///< 0.5: a sine; less: a sharper edge
  float bend = 0;     ///< in radians
  float ragged = 0;   ///< largest offset between pieces, in radians
};

/// How the camera stands, and how the surface bends.
struct Pose {
  Range turn{0, 0};  ///< in radians
  Range tilt{0, 0};  ///< perspective: how much nearer the lower edge is
  float warp = 0;    ///< size of bends, in shorter sides
};

struct Finish {
  float relief = 0;      ///< contrast of light and shadow on a piece
  float gloss = 0;       ///< brightness of highlights
  float rough = 0.1F;    ///< standard deviation of the fine pattern, relative
  bool billows = false;  ///< the ground shows where the fine pattern is low
};

/// As 0xrrggbb.
struct Colours {
  std::uint32_t dark = 0, bright = 0;  ///< pieces are between them
  std::uint32_t ground = 0;            ///< around the pieces; a factor if the ground is a texture
};

struct Texture {
  std::string_view name{};
  Layout layout{};
  Stripes stripes{};
  Pose pose{};
  Finish finish{};
  Colours colours{};
  std::size_t over = ~std::size_t{0};  ///< label of a texture that is the ground
};

struct Point {
  float x = 0, y = 0;
};

/// Rounds down, since paint_texture() gives points without negative coordinates.
std::int32_t whole(float value) { return static_cast<std::int32_t>(value); }

/// Random bits, as a function of the cell and the salt.
std::uint64_t cell_bits(std::int32_t column, std::int32_t row, std::uint64_t salt) {
  const auto cell = (static_cast<std::uint64_t>(static_cast<std::uint32_t>(column)) << 32) |
                    static_cast<std::uint32_t>(row);
  return mix64(cell + salt);
}

/// Uniform in [0, 1): 20 of the bits.
float fraction(std::uint64_t bits) { return static_cast<float>(bits & 0xfffffU) * 0x1p-20F; }

/// The piece under a point.
struct Piece {
  Point middle{};  ///< the point, relative to the piece's middle; 1 is its radius
  float edge = 9;  ///< distance of its edge, in pieces; negative: outside
  float tone = 0;  ///< uniform in [0, 1)
  bool odd = false;
};

class Pieces {
 public:
  Pieces(const Layout& layout, std::uint64_t salt) : layout_(layout), salt_(salt) {}

  Piece under(Point point) {
    return layout_.division == Division::tiles ? tile_under(point) : cell_under(point);
  }

 private:
  struct Seed {
    Point at{};
    float tone = 0;
  };

  Piece tile_under(Point point) const {
    const std::int32_t row = whole(point.y);
    const float along = point.x + (layout_.chequered ? 0 : 0.5F * static_cast<float>(row & 1));
    const std::int32_t column = whole(along);
    const float x = 2 * (along - static_cast<float>(column)) - 1;
    const float y = 2 * (point.y - static_cast<float>(row)) - 1;
    const float edge = 0.5F * std::min(1 - std::abs(x), layout_.stretch * (1 - std::abs(y)));
    return {{x, y}, edge, fraction(cell_bits(column, row, salt_)), ((column + row) & 1) != 0};
  }

  Piece cell_under(Point point) {
    // Neighbouring pixels mostly share their cell, so its surroundings are kept.
    const std::int32_t column = whole(point.x), row = whole(point.y);
    if (column != column_ || row != row_) find_seeds(column, row);
    const Seed* nearest = nullptr;
    float first = 99, second = 99;
    for (const Seed& seed : seeds_) {
      const float x = point.x - seed.at.x, y = point.y - seed.at.y;
      const float squared = x * x + y * y;
      second = std::min(second, std::max(first, squared));
      if (squared < first) {
        first = squared;
        nearest = &seed;
      }
    }
    first = std::sqrt(first);
    const Point off{point.x - nearest->at.x, point.y - nearest->at.y};
    float rim = layout_.radius * (0.7F + 0.3F * nearest->tone);
    if (layout_.petals > 0 && first < rim) {
      const float angle = std::atan2(off.y, off.x) + kTurn * nearest->tone;
      rim *= 0.55F + 0.45F * std::sqrt(std::abs(std::cos(0.5F * layout_.petals * angle)));
    }
    const float size = 1 / std::min(rim, 0.75F);
    return {{off.x * size, off.y * size},
            std::min(0.5F * (std::sqrt(second) - first), rim - first),
            nearest->tone};
  }

  void find_seeds(std::int32_t column, std::int32_t row) {
    column_ = column;
    row_ = row;
    auto seed = seeds_.begin();
    for (std::int32_t j = row - 1; j <= row + 1; ++j) {
      for (std::int32_t i = column - 1; i <= column + 1; ++i, ++seed) {
        const std::uint64_t bits = cell_bits(i, j, salt_);
        const float x = 0.15F + 0.7F * fraction(bits), y = 0.15F + 0.7F * fraction(bits >> 20);
        *seed = {{static_cast<float>(i) + x, static_cast<float>(j) + y}, fraction(bits >> 40)};
      }
    }
  }

  const Layout& layout_;
  const std::uint64_t salt_;
  std::int32_t column_ = -1000, row_ = -1000;
  std::array<Seed, 9> seeds_{};
};

Colour vary(std::uint32_t colour, Random& random) {
  const float value = uniform(random, 0.85F, 1.15F) / 255;
  const auto channel = [&](unsigned shift) {
    return value * uniform(random, 0.95F, 1.05F) * static_cast<float>(colour >> shift & 0xffU);
  };
  const float red = channel(16), green = channel(8);  // in this order
  return {red, green, channel(0)};
}

constexpr Colour kPollen{0.9F, 0.7F, 0.1F};

constexpr Texture kTextures[] = {
    {.name = "n00_balls",
     .layout = {.division = Division::cells, .pieces = {2, 4}, .gap = 0.015F, .radius = 0.5F},
     .pose = {.turn = {-0.4F, 0.4F}},
     .finish = {.relief = 0.8F, .gloss = 0.7F, .rough = 0.08F},
     .colours = {0xcc1f1f, 0xf27a24, 0x667080}},
    {.name = "n01_bricks",
     .layout = {.division = Division::tiles, .pieces = {3, 5.5F}, .stretch = 0.38F, .gap = 0.03F},
     .pose = {.turn = {-0.12F, 0.12F}, .warp = 0.005F},
     .finish = {.relief = 0.2F, .rough = 0.13F},
     .colours = {0x662e2e, 0xb25e47, 0x99948a}},
    {.name = "n02_checkers",
     .layout = {.division = Division::tiles, .pieces = {4, 8}, .gap = 0.01F, .chequered = true},
     .pose = {.turn = {-0.8F, 0.8F}, .tilt = {-0.7F, 0.7F}},
     .finish = {.rough = 0.06F},
     .colours = {0xccc2ad, 0xf2ebd9, 0x17171f}},
    {.name = "n03_clouds",
     .pose = {.warp = 0.05F},
     .finish = {.rough = 0.04F, .billows = true},
     .colours = {0xb2b8bf, 0xfafcff, 0x4785cc}},
    {.name = "n04_flowers",
     .layout = {.division = Division::cells,
                .pieces = {3, 5},
                .gap = 0.015F,
                .radius = 0.55F,
                .petals = 6},
     .pose = {.turn = {-3, 3}},
     .finish = {.relief = 0.35F, .rough = 0.08F},
     .colours = {0xbd30bf, 0xff8cc4, 0x999999},
     .over = 5},
    {.name = "n05_grass",
     .layout = {.division = Division::cells, .pieces = {35, 60}, .stretch = 10, .gap = 0.07F},
     .pose = {.turn = {-0.35F, 0.35F}, .tilt = {0, 0.5F}, .warp = 0.02F},
     .finish = {.relief = 0.5F, .rough = 0.08F},
     .colours = {0x215912, 0x99cc47, 0x121f0a}},
    {.name = "n06_pebbles",
     .layout = {.division = Division::cells, .pieces = {7, 15}, .gap = 0.04F},
     .pose = {.turn = {-3, 3}, .warp = 0.008F},
     .finish = {.relief = 0.6F, .rough = 0.1F},
     .colours = {0x665747, 0xb8c7cc, 0x14120f}},
    {.name = "n07_waves",
     .stripes = {.count = {4, 8}, .depth = 0.9F, .bend = 1.5F},
     .pose = {.turn = {1.3F, 1.8F}, .tilt = {-0.6F, -0.1F}, .warp = 0.02F},
     .finish = {.gloss = 0.7F, .rough = 0.1F},
     .colours = {0x2b8c8c, 0x70ccc2, 0x0a3040}},
    {.name = "n08_wood",
     .layout = {.division = Division::tiles, .pieces = {3, 6}, .stretch = 30, .gap = 0.015F},
     .stripes = {.count = {25, 50}, .depth = 0.35F, .bend = 3, .ragged = 40},
     .pose = {.turn = {-0.1F, 0.1F}, .warp = 0.001F},
     .finish = {.rough = 0.06F},
     .colours = {0x664229, 0xb28a59, 0x261a0f}},
    {.name = "n09_fur",
     .layout = {.division = Division::cells, .pieces = {70, 100}, .stretch = 14, .gap = 0.04F},
     .stripes = {.count = {3, 5}, .depth = 1, .soft = 0.15F, .bend = 1, .ragged = 1.2F},
     .pose = {.turn = {-3, 3}, .warp = 0.025F},
     .finish = {.relief = 0.3F, .rough = 0.08F},
     .colours = {0xb25c2b, 0xffb866, 0x1a1412}},
};

}  // namespace

std::size_t texture_count() { return std::size(kTextures); }
std::string_view texture_name(std::size_t label) { return kTextures[label].name; }

void paint_texture(Canvas& canvas, std::size_t label, Random& random) {
  const auto& [name, layout, stripes, pose, finish, colours, over] = kTextures[label];
  const bool is_over = over < std::size(kTextures);
  if (is_over) paint_texture(canvas, over, random);
  const std::vector<float> warp = fractal_field(canvas, 0.5F, random);
  const std::vector<float> rough = fractal_field(canvas, finish.billows ? 0.62F : 0.9F, random);
  const float angle = pose.turn.draw(random);
  const float along = std::cos(angle), across = std::sin(angle);
  const float zoom = layout.pieces.draw(random), stripe = kTurn * stripes.count.draw(random);
  const float tilt = pose.tilt.draw(random), cover = uniform(random, -0.4F, 0.6F);
  const Point shift{uniform(random, 8, 50), uniform(random, 8, 50)};
  const float from = uniform(random, 0, kTurn);
  const Point light{0.6F * std::cos(from), -0.6F * std::abs(std::sin(from))};
  const Colour dark = vary(colours.dark, random), bright = vary(colours.bright, random);
  const Colour ground = vary(colours.ground, random);
  Pieces pieces(layout, random.bits());
  const float width = static_cast<float>(canvas.width), height = static_cast<float>(canvas.height);
  const float step = 1 / canvas.unit();
  float x = 0, y = 0;  // in pixels
  for (std::size_t i = 0; i < canvas.pixels(); ++i, ++x) {
    if (x >= width) {
      x = 0;
      ++y;
    }
    // Perspective of a floor or a ceiling.
    const float away = 1 / (1 + tilt * (y / height - 0.5F));
    const Point flat{(x * step - 0.6F) * away, (y * step - 0.5F) * away};
    const float bend = pose.warp * warp[i];
    const Point at{along * flat.x - across * flat.y + shift.x + bend,
                   across * flat.x + along * flat.y + shift.y + bend};
    Piece piece{.tone = std::clamp(0.5F + 0.3F * warp[i], 0.0F, 1.0F)};
    if (layout.division != Division::none) {
      piece = pieces.under({zoom * at.x, zoom * at.y / layout.stretch});
    }
    const float wave = 0.5F + 0.5F * std::sin(stripe * at.x + stripes.bend * warp[i] +
                                              stripes.ragged * piece.tone);
    float shown = smoothstep(layout.gap, 2 * layout.gap, piece.edge);
    if (layout.chequered && piece.odd) shown = 0;
    shown *= 1 - stripes.depth * smoothstep(0.5F + stripes.soft, 0.5F - stripes.soft, wave);
    if (finish.billows) shown *= smoothstep(cover - 0.5F, cover + 1.1F, rough[i]);
    // How much a rounded piece faces the light.
    const float squared = piece.middle.x * piece.middle.x + piece.middle.y * piece.middle.y;
    float facing = light.x * piece.middle.x + light.y * piece.middle.y +
                   0.75F * std::sqrt(std::max(0.0F, 1 - squared));
    if (layout.division == Division::none) facing = wave - 0.2F + 0.1F * rough[i];
    const float shade = 1 + finish.relief * (std::max(facing, -0.3F) - 0.6F);
    const float highlight = finish.gloss * smoothstep(0.9F, 1.0F, facing);
    const float core = layout.petals > 0 ? smoothstep(0.12F, 0.08F, squared) : 0;
    const Colour face =
        mix(mix(dark, bright, piece.tone), kPollen, core) * shade + Colour{1, 1, 1} * highlight;
    canvas.rgb[i] = mix(is_over ? canvas.rgb[i] * ground.g : ground, face, shown) *
                    (1 + finish.rough * rough[i]);
  }
}

}  // namespace penstock::dataset
