// SPDX-License-Identifier: Apache-2.0
// JPEG files for the data set tools: encoding, reading headers, and thumbnails. PNG files can be
// read too. Training images use dataflow's decoder instead. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace penstock::dataset {

/// An image in memory: 8 bits per channel, interleaved red, green and blue, rows without padding.
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

/// Encodes a baseline JPEG: YCbCr 4:2:0, quality 1 to 100, the Huffman tables of the standard.
std::vector<std::byte> encode_jpeg(const Photo& photo, std::int32_t quality);

struct JpegHeader {
  std::int32_t width = 0, height = 0;
  std::string colour_space;  ///< as stored: "YCbCr", "grayscale", "CMYK", "YCCK", "RGB", "unknown";
                             ///< "PNG" for all of that format
  std::string subsampling;   ///< "4:2:0", "4:2:2", "4:4:4", "4:4:0", "4:1:1", "none", or factors
  bool progressive = false;
};

/// Reads only the header. Throws DataError with `path`, also if the file is neither JPEG nor PNG.
JpegHeader read_jpeg_header(const std::string& path);
/// Reads the header from memory; messages use `name`.
JpegHeader read_jpeg_header(std::span<const std::byte> bytes, const std::string& name);

/// Decodes at libjpeg's coarsest scale that is at least width x height in both directions, if there
/// is one. Throws DataError with `path`, also for images above 100 million pixels.
Photo read_jpeg_reduced(const std::string& path, std::int32_t width, std::int32_t height);

}  // namespace penstock::dataset
