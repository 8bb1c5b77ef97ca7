// SPDX-License-Identifier: Apache-2.0
// A synthetic photograph: a texture, taken by a camera with light, lens, noise and an
// ImageNet-like choice of sizes. As a JPEG it has about as many bytes as a real photograph.
#pragma once

#include <cstdint>

#include "bench/dataset/jpeg_file.h"

namespace penstock::dataset {

/// Increase it whenever the same arguments give different pixels.
inline constexpr std::int32_t kSyntheticPhotoVersion = 2;

/// Returns photograph `index` of a split (0, 1, ...), as a function of the arguments only. `label`
/// is that of a texture. Any thread; takes about 10 ms.
Photo synthetic_photo(std::int32_t label, std::uint64_t seed, std::uint64_t split,
                      std::uint64_t index);

}  // namespace penstock::dataset
