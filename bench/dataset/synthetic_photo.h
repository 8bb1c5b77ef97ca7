// SPDX-License-Identifier: Apache-2.0
// A synthetic photograph: a scene of some class, taken by a camera with light, lens, noise and an
// ImageNet-like choice of sizes. As JPEG it costs about as many bytes as the photographs it stands
// for.
#pragma once

#include <cstdint>

#include "bench/dataset/photo.h"

namespace penstock {

/// Raised whenever the same arguments begin to give other pixels.
inline constexpr std::int32_t kSyntheticPhotoVersion = 1;

/// The photograph `index` of a split (0, 1, ...) as a function of the arguments alone. `scene`
/// counts in scenes(). Any thread; takes about 10 ms.
Photo synthetic_photo(std::int32_t scene, std::uint64_t seed, std::uint64_t split,
                      std::uint64_t index);

}  // namespace penstock
