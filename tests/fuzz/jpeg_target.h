// SPDX-License-Identifier: Apache-2.0
// What the fuzzer and its deterministic twin do with the bytes of a file: decode them through a
// chain into a row between guards. Throws std::logic_error where a byte beside the row was written,
// or where libjpeg alone gives other pixels or another verdict.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "dataflow/augmentation.h"
#include "dataflow/decoder.h"
#include "tests/fuzz/guarded_row.h"
#include "tests/support/jpeg_writer.h"

namespace penstock {

extern const DecoderEntry jpeg_decoder;

/// A decoder for every crop, resize method and distortion, each with both ways to decode.
class JpegChains {
 public:
  JpegChains() {
    // A header may be turned into one of any size, which must not be decoded at any price.
    const std::string limits = ",max_pixels=200000";
    for (const char* decode : {"region", "full"}) {
      const std::string rest = limits + ",decode=" + decode;
      for (const OptionValue& crop : kCropValues) {
        for (const OptionValue& resize : kResizeValues) {
          add("jpeg:crop=" + std::string(crop.name) + ",resize=" + std::string(resize.name) + rest);
        }
        for (const OptionValue& color : kColourValues) {
          add("jpeg:crop=" + std::string(crop.name) + ",color=" + std::string(color.name) + rest);
        }
      }
    }
  }

  std::size_t size() const noexcept { return decoders_.size(); }

  /// Whether `bytes` were an image for the chain of that number. The row is of one of a few shapes.
  bool try_one(std::size_t chain, std::span<const std::byte> bytes, std::uint64_t index) {
    const std::size_t number = chain % decoders_.size();
    const std::vector<std::byte> row = decode(*decoders_[number], bytes, index);
    const std::vector<std::byte> expected = decode(*by_libjpeg_[number], bytes, index);
    // Of a region libjpeg may read some rows more than we do, and find damage there.
    const bool reads_more = number < decoders_.size() / 2 && expected.empty();
    if (row != expected && !reads_more) throw std::logic_error("other pixels than libjpeg's");
    return !row.empty();
  }

 private:
  static std::vector<std::byte> decode(Decoder& decoder, std::span<const std::byte> bytes,
                                       std::uint64_t index) {
    Sample sample;
    sample.lent = bytes;
    sample.index = index;
    sample.file = "fuzz.JPEG";
    return decode_guarded(decoder, sample);
  }

  static std::unique_ptr<Decoder> make(const std::string& text) {
    return jpeg_decoder.make(
        Options(jpeg_decoder.name, jpeg_decoder.options, parse_component(text)));
  }

  void add(const std::string& text) {
    decoders_.push_back(make(text));
    by_libjpeg_.push_back(make(text + ",engine=libjpeg"));
  }

  std::vector<std::unique_ptr<Decoder>> decoders_, by_libjpeg_;
};

/// Good files of every kind, to be changed.
inline std::vector<std::vector<std::byte>> jpeg_corpus() {
  const TestImage rgb = make_test_image(61, 47);
  return {
      encode_jpeg(rgb, {.quality = 60}),
      encode_jpeg(rgb, {.quality = 60, .progressive = true}),
      encode_jpeg(rgb, {.quality = 60, .restart_interval = 3}),
      encode_jpeg(rgb, {.quality = 98, .horizontal = 2, .vertical = 1, .optimised = true}),
      encode_jpeg(rgb, {.quality = 10, .horizontal = 1, .vertical = 2}),
      encode_jpeg(rgb, {.quality = 60, .horizontal = 1, .vertical = 1, .separate_scans = true}),
      encode_jpeg(rgb, {.quality = 60, .horizontal = 4, .vertical = 1, .arithmetic = true}),
      encode_jpeg(make_test_image(64, 1, 1)),
      encode_jpeg(make_test_image(1, 64)),
      encode_jpeg(make_test_image(40, 33, 4), {.quality = 60}),
      encode_jpeg(make_test_image(40, 33, 4), {.quality = 60, .ycck = true}),
  };
}

}  // namespace penstock
