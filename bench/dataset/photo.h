// SPDX-License-Identifier: Apache-2.0
// An image in memory: 8 bits per channel, interleaved red, green and blue, rows without padding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::dataset {

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

}  // namespace penstock::dataset
