// SPDX-License-Identifier: Apache-2.0
#include "dataflow/images/planes.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace penstock {
namespace {

TEST(Planes, HoldTheChannelsOfEachImageInTurn) {
  for (const std::size_t element : {1U, 2U, 4U}) {
    for (const ImageShape shape : {ImageShape{5, 7, 3}, ImageShape{4, 4, 1}, ImageShape{3, 2, 4}}) {
      constexpr std::size_t kImages = 3;
      const std::size_t row = shape.elements(), channels = static_cast<std::size_t>(shape.channels),
                        plane = row / channels;
      std::vector<std::byte> images(kImages * row * element), planes(images.size());
      for (std::size_t i = 0; i < images.size(); ++i) images[i] = static_cast<std::byte>(i * 37);
      split_planes(images, shape, element, planes.data());
      for (std::size_t i = 0; i < kImages * row; ++i) {
        const std::size_t image = i / row, pixel = i % row / channels, channel = i % channels;
        const std::size_t to = image * row + channel * plane + pixel;
        EXPECT_EQ(std::memcmp(&images[i * element], &planes[to * element], element), 0)
            << element << " bytes, element " << i;
      }
    }
  }
}

}  // namespace
}  // namespace penstock
