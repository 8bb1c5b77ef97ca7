// SPDX-License-Identifier: Apache-2.0
// JPEG files as the data set's tools need them: written from pixels, their headers read, and small
// pictures of them made. Training images go through dataflow's decoder instead. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "bench/dataset/photo.h"

namespace penstock {

/// Bytes that free() gives back.
class JpegBytes {
 public:
  JpegBytes(unsigned char* data, std::size_t size) : data_(data), size_(size) {}
  std::span<const std::byte> bytes() const noexcept {
    return std::as_bytes(std::span(data_.get(), size_));
  }

 private:
  struct Free {
    void operator()(unsigned char* data) const noexcept;
  };
  std::unique_ptr<unsigned char, Free> data_;
  std::size_t size_;
};

/// Baseline, YCbCr 4:2:0, quality 1 to 100, the standard's own Huffman tables.
JpegBytes encode_jpeg(const Photo& photo, std::int32_t quality);

struct JpegHeader {
  std::int32_t width = 0, height = 0, components = 0;
  std::string colour_space;  ///< as stored: "YCbCr", "grayscale", "CMYK", "YCCK", "RGB", "unknown"
  std::string subsampling;   ///< "4:2:0", "4:2:2", "4:4:4", "4:4:0", "4:1:1", "none", or factors
  bool progressive = false;
};

/// Reads no further than the header. Throws DataError naming `path`, for what is no JPEG as well.
JpegHeader read_jpeg_header(const std::string& path);
/// The same for bytes in memory, which messages call `name`.
JpegHeader read_jpeg_header(std::span<const std::byte> bytes, const std::string& name);

/// Decodes with the coarsest of libjpeg's scales that is no smaller than width x height in both
/// directions, where there is one. Throws DataError naming `path`, for images beyond 100 million
/// pixels as well.
Photo read_jpeg_reduced(const std::string& path, std::int32_t width, std::int32_t height);

}  // namespace penstock
