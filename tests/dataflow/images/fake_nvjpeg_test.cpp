// SPDX-License-Identifier: Apache-2.0
// engine=nvjpeg over the fake CUDA libraries (tests/support/gpu/fake): in which order it calls
// them, and what becomes of their errors.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dataflow/error.h"
#include "tests/dataflow/images/decoded_rows.h"
#include "tests/support/gpu/fake/control.h"
#include "tests/support/jpeg_writer.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;

constexpr ImageShape kShape{40, 48, 3};

class FakeNvjpeg : public testing::Test {
 protected:
  void SetUp() override { fake_cuda_restart("timing=late"); }
  void TearDown() override { EXPECT_EQ(fake_cuda_races(), 0); }
};

Bytes row_of(Decoder& decoder, const Bytes& file, std::uint64_t seed = 1) {
  return decoded_row(decoder, file, kShape, seed);
}

TEST_F(FakeNvjpeg, PixelsAreTheLibrarysAfterCropResizeAndFlip) {
  for (const std::string options :
       {"shrink=false", "shrink=false,upsampling=plain", "crop=center,shrink=false",
        "chain=tf_cnn_benchmarks,shrink=false"}) {
    const auto gpu = make_decoder("jpeg:" + options + ",engine=nvjpeg"),
               libjpeg = make_decoder("jpeg:" + options + ",engine=libjpeg,decode=full");
    for (const auto& [width, height] : {std::pair{97, 143}, {211, 64}, {16, 31}}) {
      for (const int v : {1, 2}) {
        const Bytes file =
            encode_jpeg(make_test_image(width, height), {.horizontal = 2, .vertical = v});
        for (std::uint64_t seed = 1; seed < 6; ++seed) {
          ASSERT_EQ(row_of(*gpu, file, seed), row_of(*libjpeg, file, seed))
              << options << ' ' << width << 'x' << height << ", seed " << seed;
        }
      }
    }
    EXPECT_EQ(gpu->take_substituted(), 0);
  }
  EXPECT_EQ(fake_cuda_calls("nvjpegDecode"), 4 * 3 * 2 * 5);
}

TEST_F(FakeNvjpeg, MemoryGrowsToTheLargestImageAndIsGivenBack) {
  {
    const auto gpu = make_decoder("jpeg:engine=nvjpeg");
    for (const int size : {64, 32, 100, 80, 100}) {
      row_of(*gpu, encode_jpeg(make_test_image(size, size)));
    }
    EXPECT_EQ(fake_cuda_calls("cudaMalloc"), 2);
    EXPECT_EQ(fake_cuda_calls("cudaHostAlloc"), 2);
    EXPECT_EQ(fake_cuda_calls("cudaEventSynchronize"), 5);
  }
  EXPECT_EQ(fake_cuda_calls("cudaFree"), 2);
  EXPECT_EQ(fake_cuda_calls("cudaFreeHost"), 2);
  EXPECT_EQ(fake_cuda_calls("nvjpegJpegStateDestroy"), 1);
  EXPECT_EQ(fake_cuda_calls("nvjpegDestroy"), 1);
  EXPECT_EQ(fake_cuda_calls("cudaStreamDestroy"), 1);
}

TEST_F(FakeNvjpeg, ImagesThatItDoesNotSupportGoToLibjpegAndAreCounted) {
  const auto gpu = make_decoder("jpeg:engine=nvjpeg,shrink=false"),
             libjpeg = make_decoder("jpeg:engine=libjpeg,shrink=false");
  const Bytes files[] = {encode_jpeg(make_test_image(140, 80, 1)),
                         encode_jpeg(make_test_image(140, 80, 4))};
  for (const Bytes& file : files) EXPECT_EQ(row_of(*gpu, file), row_of(*libjpeg, file));
  EXPECT_EQ(fake_cuda_calls("nvjpegDecode"), 0) << "grey or CMYK";
  EXPECT_EQ(gpu->take_substituted(), 2);
  EXPECT_EQ(gpu->take_substituted(), 0);
}

TEST_F(FakeNvjpeg, LibjpegDecidesWhatIsDamaged) {
  const Bytes good = encode_jpeg(make_test_image(120, 90));
  for (const int status : {3, 4, 9, 10}) {  // bad, unsupported, not implemented, incomplete
    fake_cuda_restart(("fail=nvjpegDecode:1:" + std::to_string(status) +
                       ",fail=nvjpegDecode:2:" + std::to_string(status))
                          .c_str());
    const auto gpu = make_decoder("jpeg:engine=nvjpeg,shrink=false"),
               libjpeg = make_decoder("jpeg:engine=libjpeg,shrink=false");
    EXPECT_EQ(row_of(*gpu, good), row_of(*libjpeg, good)) << status;
    EXPECT_EQ(gpu->take_substituted(), 1);
    const Bytes cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(good.size() / 3));
    EXPECT_TRUE(says(thrown_by<DataError>([&] { row_of(*gpu, cut, 7); }),
                     "decoding 'some/file.JPEG' (sample 7"));
    const Bytes other = encode_jpeg(make_test_image(64, 64));
    EXPECT_EQ(row_of(*gpu, other), row_of(*libjpeg, other)) << "after damage";
  }
}

TEST_F(FakeNvjpeg, FailuresOfTheGpuEndTheRunByName) {
  const Bytes file = encode_jpeg(make_test_image(64, 64));
  fake_cuda_restart("fail=nvjpegDecode:1:6,fail=cudaEventSynchronize:1:700");
  {
    const auto gpu = make_decoder("jpeg:engine=nvjpeg");
    EXPECT_TRUE(says(thrown_by<DeviceError>([&] { row_of(*gpu, file); }),
                     "nvjpegDecode failed with status 6"));
    EXPECT_TRUE(says(thrown_by<DeviceError>([&] { row_of(*gpu, file); }),
                     "cudaEventSynchronize failed while engine=nvjpeg decoded: an illegal memory"));
  }
  fake_cuda_restart("memory_mib=1");
  const auto small = make_decoder("jpeg:engine=nvjpeg");
  const Bytes large = encode_jpeg(make_test_image(700, 700));
  EXPECT_TRUE(says(thrown_by<DeviceError>([&] { row_of(*small, large); }), "out of memory"));
  EXPECT_NO_THROW(row_of(*small, file));
}

TEST_F(FakeNvjpeg, WithoutAGpuTheErrorGivesTheReason) {
  fake_cuda_restart("devices=0");
  EXPECT_TRUE(says(thrown_by<Unavailable>([] { make_decoder("jpeg:engine=nvjpeg"); }),
                   "no CUDA-capable device is detected; take engine=auto"));
  fake_cuda_restart("fail=cudaGetDeviceCount:1:35");
  EXPECT_TRUE(says(thrown_by<Unavailable>([] { make_decoder("jpeg:engine=nvjpeg"); }),
                   "driver version is insufficient"));
}

}  // namespace
}  // namespace penstock
