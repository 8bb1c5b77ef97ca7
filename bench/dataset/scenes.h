// SPDX-License-Identifier: Apache-2.0
// The classes of the synthetic data set: each is a kind of scene with its palette, its texture and
// its shapes, all of which vary from image to image. No two classes differ in colour alone.
#pragma once

#include <span>
#include <string_view>

#include "bench/dataset/canvas.h"
#include "dataflow/random.h"

namespace penstock {

struct Scene {
  std::string_view name{};
  /// Paints every pixel; the picture is a function of the size and of what `random` gives.
  void (*paint)(Canvas&, Random&) = nullptr;
};

/// All kinds of scenes, in the order of their labels.
std::span<const Scene> scenes();

// Scenes made of things, drawn one over the other.
void paint_balls(Canvas&, Random&);
void paint_flowers(Canvas&, Random&);
void paint_fur(Canvas&, Random&);
void paint_grass(Canvas&, Random&);

// Scenes that are one surface, shaded pixel by pixel.
void paint_bricks(Canvas&, Random&);
void paint_checkers(Canvas&, Random&);
void paint_clouds(Canvas&, Random&);
void paint_pebbles(Canvas&, Random&);
void paint_waves(Canvas&, Random&);
void paint_wood(Canvas&, Random&);

}  // namespace penstock
