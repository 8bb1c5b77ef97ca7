// SPDX-License-Identifier: Apache-2.0
#include "dataflow/images/planes.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "dataflow/images/normalisation.h"

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

/// Black images, each by another engine than the one that was asked for.
class Substitute final : public Decoder {
 public:
  void decode(const Sample&, const ImageView& row, Random&) override {
    std::memset(row.data, 0, row.shape.elements());
    ++images_;
  }
  std::int64_t take_substituted() noexcept override { return std::exchange(images_, 0); }

 private:
  std::int64_t images_ = 0;
};

TEST(Planes, ImagesOfAnotherEngineAreCountedBehindEachWrapping) {
  std::vector<std::byte> row(4 * 4 * 3 * sizeof(float));
  for (const auto& [wrap, type] : {std::pair{&make_planar_decoder, DType::u8},
                                   std::pair{&make_normalising_decoder, DType::f32}}) {
    const std::unique_ptr<Decoder> decoder = wrap(std::make_unique<Substitute>());
    Random random(1);
    const auto line = static_cast<std::ptrdiff_t>(12 * size_of(type));
    decoder->decode({}, {row.data(), {4, 4, 3}, type, line}, random);
    EXPECT_EQ(decoder->take_substituted(), 1);
    EXPECT_EQ(decoder->take_substituted(), 0);
  }
}

}  // namespace
}  // namespace penstock
