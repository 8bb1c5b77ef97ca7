// SPDX-License-Identifier: Apache-2.0
// A data set that a linear layer can learn: each class is a colour, and each image a shade of it.
#pragma once

#include <cstdint>
#include <string>

#include "tests/support/jpeg_writer.h"
#include "tests/support/temp_folder.h"

namespace penstock {

/// Writes below/class<c>/<i>.JPEG, for up to four classes.
inline void write_coloured_images(const TempFolder& folder, const std::string& below, int classes,
                                  int images_per_class) {
  constexpr std::uint8_t kColours[4][3] = {
      {180, 40, 40}, {40, 180, 40}, {40, 40, 180}, {160, 160, 30}};
  for (int c = 0; c < classes; ++c) {
    for (int i = 0; i < images_per_class; ++i) {
      const auto shade = [&](int channel) {
        return static_cast<std::uint8_t>(kColours[c][channel] + 7 * i % 60);
      };
      folder.write(below + "/class" + std::to_string(c) + "/" + std::to_string(100 + i) + ".JPEG",
                   encode_jpeg(make_flat_image(16, 16, shade(0), shade(1), shade(2))));
    }
  }
}

}  // namespace penstock
