// SPDX-License-Identifier: Apache-2.0
// An image in memory: 8 bits a channel, red, green and blue interleaved, lines without padding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock {

struct Photo {
  std::int32_t width = 0, height = 0;
  std::vector<std::uint8_t> rgb;  ///< [H,W,3]

  std::uint8_t* line(std::int32_t y) noexcept {
    return rgb.data() + static_cast<std::ptrdiff_t>(y) * width * 3;
  }
  const std::uint8_t* line(std::int32_t y) const noexcept {
    return rgb.data() + static_cast<std::ptrdiff_t>(y) * width * 3;
  }
};

}  // namespace penstock
