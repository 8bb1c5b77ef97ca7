// SPDX-License-Identifier: Apache-2.0
// After its largest image, a decoder allocates nothing, for any sequence of sizes, samplings and
// tables. Memory that libjpeg allocates by malloc for headers is not counted.
#include <gtest/gtest.h>

#include <vector>

#include "tests/dataflow/images/decoded_rows.h"
#include "tests/support/allocation_count.h"
#include "tests/support/jpeg_writer.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;
constexpr ImageShape kShape{64, 72, 3};

std::vector<Bytes> varied_files() {
  std::vector<Bytes> files;
  int seed = 0;
  for (const auto& [width, height] :
       {std::pair{300, 200}, {61, 47}, {1, 90}, {90, 1}, {128, 128}, {200, 310}}) {
    for (const auto& [h, v] : {std::pair{1, 1}, {2, 1}, {1, 2}, {2, 2}}) {
      const TestImage image = make_test_image(width, height, 3, static_cast<unsigned>(++seed));
      const int quality = 20 + seed * 3;
      files.push_back(encode_jpeg(image, {.quality = quality, .horizontal = h, .vertical = v}));
      files.push_back(encode_jpeg(image, {.quality = quality,
                                          .horizontal = h,
                                          .vertical = v,
                                          .restart_interval = seed % 3,
                                          .optimised = true}));
    }
    files.push_back(encode_jpeg(make_test_image(width, height, 1)));
    files.push_back(encode_jpeg(make_test_image(width, height), {.progressive = true}));
    files.push_back(encode_jpeg(make_test_image(width, height, 4), {.ycck = true}));
  }
  return files;
}

TEST(JpegAllocation, TheSteadyStateAllocatesNothing) {
  const std::vector<Bytes> files = varied_files();
  Bytes row(kShape.elements());
  for (const char* text :
       {"jpeg", "jpeg:decode=full", "jpeg:engine=libjpeg", "jpeg:engine=libjpeg,decode=full",
        "jpeg:chain=tf_cnn_benchmarks", "jpeg:chain=tensorpack,upsampling=plain"}) {
    const auto decoder = make_decoder(text);
    Sample sample;
    sample.file = "some/file.JPEG";
    const auto decode = [&](std::size_t file, std::uint64_t seed) {
      sample.lent = files[file];
      sample.index = seed;
      Random random(seed);
      decoder->decode(sample, {row.data(), kShape, DType::u8, std::ptrdiff_t{3} * kShape.width},
                      random);
    };
    constexpr std::uint64_t kSeeds = 5;
    for (std::size_t file = 0; file < files.size(); ++file) {
      for (std::uint64_t seed = 0; seed < kSeeds; ++seed) decode(file, seed);
    }
    // The same crops in another order, so that sizes and tables change differently.
    const std::int64_t before = allocation_count();
    ASSERT_GT(before, 0) << "this program's operator new is not the one in use";
    for (std::uint64_t seed = kSeeds; seed-- > 0;) {
      for (std::size_t i = 0; i < files.size(); ++i) decode(i * 7 % files.size(), seed);
    }
    EXPECT_EQ(allocation_count() - before, 0) << text;
  }
}

}  // namespace
}  // namespace penstock
