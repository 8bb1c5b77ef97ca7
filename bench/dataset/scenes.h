// SPDX-License-Identifier: Apache-2.0
// The classes of the synthetic data set. Each class is a kind of scene with palette, texture and
// shapes, which vary between images. No two classes differ only in colour.
#pragma once

#include <span>
#include <string_view>

#include "bench/dataset/canvas.h"
#include "dataflow/random.h"

namespace penstock::dataset {

struct Scene {
  std::string_view name{};
  /// Paints every pixel. The picture depends only on the size and on `random`.
  void (*paint)(Canvas&, Random&) = nullptr;
};

/// All kinds of scenes, in the order of their labels.
std::span<const Scene> scenes();

// Scenes of things that are drawn over each other.
void paint_balls(Canvas&, Random&);
void paint_flowers(Canvas&, Random&);
void paint_fur(Canvas&, Random&);
void paint_grass(Canvas&, Random&);

// Scenes of a single surface, shaded pixel by pixel.
void paint_bricks(Canvas&, Random&);
void paint_checkers(Canvas&, Random&);
void paint_clouds(Canvas&, Random&);
void paint_pebbles(Canvas&, Random&);
void paint_waves(Canvas&, Random&);
void paint_wood(Canvas&, Random&);

}  // namespace penstock::dataset
