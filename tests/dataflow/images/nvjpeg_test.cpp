// SPDX-License-Identifier: Apache-2.0
// engine=nvjpeg on this machine: on a GPU its pixels are near libjpeg-turbo's; without one it is
// refused with the reason.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>

#include "dataflow/error.h"
#include "tests/dataflow/images/decoded_rows.h"
#include "tests/support/jpeg_writer.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

/// Why this machine has no nvJPEG; empty: it has.
std::string reason_against_nvjpeg() {
  try {
    make_decoder("jpeg:engine=nvjpeg");
  } catch (const Unavailable& error) {
    return error.what();
  }
  return {};
}

TEST(Nvjpeg, WithoutItTheReasonAndAnotherEngineAreNamed) {
  const std::string reason = reason_against_nvjpeg();
  if (reason.empty()) GTEST_SKIP() << "this machine has nvJPEG and a GPU";
  EXPECT_TRUE(says(reason, "engine=nvjpeg"));
  EXPECT_TRUE(says(reason, "take engine=auto"));
}

/// Another inverse DCT and another rounding of colours differ by a few units; chroma is
/// interpolated at slightly different places.
TEST(Nvjpeg, PixelsAreCloseToLibjpeg) {
  const std::string reason = reason_against_nvjpeg();
  if (!reason.empty()) GTEST_SKIP() << reason;
  constexpr ImageShape kShape{96, 128, 3};
  for (const auto& [h, v, most, mean] :
       {std::tuple{1, 1, 4, 0.75}, {2, 1, 48, 1.5}, {2, 2, 48, 1.5}}) {
    for (const bool progressive : {false, true}) {
      const auto file = encode_jpeg(make_test_image(128, 96),
                                    {.horizontal = h, .vertical = v, .progressive = progressive});
      const std::string options = "jpeg:crop=full,flip=false,shrink=false,engine=";
      const auto gpu = make_decoder(options + "nvjpeg");
      const auto ours = decoded_row(*gpu, file, kShape);
      const auto expected = decoded_row(*make_decoder(options + "libjpeg"), file, kShape);
      EXPECT_EQ(gpu->take_substituted(), 0);
      int largest = 0;
      double sum = 0;
      for (std::size_t i = 0; i < ours.size(); ++i) {
        const int off = std::abs(std::to_integer<int>(ours[i]) - std::to_integer<int>(expected[i]));
        largest = std::max(largest, off);
        sum += off;
      }
      EXPECT_LE(largest, most) << h << 'x' << v;
      EXPECT_LE(sum / static_cast<double>(ours.size()), mean) << h << 'x' << v;
    }
  }
}

}  // namespace
}  // namespace penstock
