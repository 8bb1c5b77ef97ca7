// SPDX-License-Identifier: Apache-2.0
#include "feeders/synthetic_pixels.h"

#include <gtest/gtest.h>

#include <vector>

namespace penstock {
namespace {

TEST(SyntheticPixels, AStopRequestEndsTheDrawingOfABatch) {
  std::vector<std::byte> pixels(std::size_t{20} << 20);
  Batch batch;
  batch.pixels = pixels;
  std::stop_source stop;
  stop.request_stop();
  fill_random(batch, 10, 1, 0, 0, stop.get_token());
  EXPECT_EQ(pixels, std::vector<std::byte>(pixels.size())) << "left as it was";
  fill_random(batch, 10, 1, 0, 0);
  std::vector<std::byte> at_once(pixels.size());
  Random(1, 0, 0).fill(at_once);
  EXPECT_EQ(pixels, at_once) << "the same bytes, whatever parts they are drawn in";
}

}  // namespace
}  // namespace penstock
