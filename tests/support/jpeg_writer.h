// SPDX-License-Identifier: Apache-2.0
// Makes JPEG images at test time with libjpeg, of every kind that a data set may hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock {

/// Interleaved 8-bit pixels: 1 (gray), 3 (RGB) or 4 (CMYK) channels.
struct TestImage {
  int width = 0, height = 0, channels = 3;
  std::vector<std::uint8_t> pixels;

  const std::uint8_t* at(int x, int y) const {
    return pixels.data() + (static_cast<std::size_t>(y) * width + x) * channels;
  }
};

/// An image of smooth colours, edges and some noise, so that neighbouring pixels differ.
TestImage make_test_image(int width, int height, int channels = 3, std::uint64_t seed = 1);
/// An image of one colour.
TestImage make_flat_image(int width, int height, std::uint8_t red, std::uint8_t green,
                          std::uint8_t blue);

struct JpegForm {
  int quality = 90;
  int horizontal = 2, vertical = 2;  ///< luma samples for each chroma sample: 2, 2 is 4:2:0
  bool progressive = false;
  bool arithmetic = false;
  bool separate_scans = false;  ///< one scan per component, though sequential
  int restart_interval = 0;     ///< in MCUs; 0: no restarts
  bool stored_as_rgb = false;   ///< no conversion to YCbCr
  bool ycck = false;            ///< CMYK stored as YCCK
  bool adobe_marker = true;     ///< for CMYK
  bool optimised = false;       ///< Huffman tables made for the image
};

std::vector<std::byte> encode_jpeg(const TestImage& image, const JpegForm& form = {});

/// libjpeg's plain decode of all pixels to RGB (CMYK stays CMYK), with smooth chroma upsampling or
/// without.
TestImage decode_jpeg(const std::vector<std::byte>& bytes, bool fancy = true, int divisor = 1);

}  // namespace penstock
