// SPDX-License-Identifier: Apache-2.0
// The classes of the synthetic data set. Each class is a texture: a row of parameters for one
// painter. Palette, size, direction and light vary between images. No two classes differ only in
// colour. Pure functions.
#pragma once

#include <cstddef>
#include <string_view>

#include "bench/dataset/canvas.h"
#include "dataflow/random.h"

namespace penstock::dataset {

/// Labels are below it.
std::size_t texture_count();
std::string_view texture_name(std::size_t label);

/// Paints every pixel with texture `label`. The picture depends only on the size and on `random`.
void paint_texture(Canvas& canvas, std::size_t label, Random& random);

}  // namespace penstock::dataset
