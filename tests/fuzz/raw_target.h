// SPDX-License-Identifier: Apache-2.0
// What the fuzzer and its deterministic twin do with pixels and what is said of them: decode them
// by the decoder raw into a row between guards. Throws std::logic_error where pixels are taken that
// are more or fewer than was said, or the other way round.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/fuzz/guarded_row.h"

namespace penstock {

extern const DecoderEntry raw_decoder;

inline constexpr std::size_t kRawHead = 7;

/// Of the first seven bytes one chooses the crop, two are the width, two the height, one has the
/// channels, planes, and whether the height is the one that fits, and one is the sample's number.
/// The others are pixels. Whether they were decoded.
inline bool try_raw(std::span<const std::byte> input) {
  static const std::vector<std::unique_ptr<Decoder>> decoders = [] {
    std::vector<std::unique_ptr<Decoder>> all;
    for (const char* crop : {"auto", "auto-center", "random", "center", "full", "pad1", "pad256",
                             "tf_random", "tensorpack_center"}) {
      for (const char* flip : {"true", "false"}) {
        all.push_back(raw_decoder.make(
            Options(raw_decoder.name, raw_decoder.options,
                    parse_component("raw:crop=" + std::string(crop) + ",flip=" + flip))));
      }
    }
    return all;
  }();
  if (input.size() < kRawHead) return false;
  const auto at = [&](std::size_t i) { return std::to_integer<std::int32_t>(input[i]); };
  // A block of exactly this size, so that a sanitizer sees one byte too many.
  const std::vector<std::byte> pixels(input.begin() + kRawHead, input.end());
  Sample sample;
  sample.lent = pixels;
  sample.index = static_cast<std::uint64_t>(at(6));
  sample.file = "fuzz.npy";
  PixelLayout& layout = sample.layout;
  layout = {at(1) + 256 * at(2), at(3) + 256 * at(4), (at(5) & 1) != 0 ? 3 : 1, (at(5) & 2) != 0,
            (at(5) & 4) != 0};
  if ((at(5) & 8) != 0) {
    const std::int32_t across = std::max(1, layout.width * layout.channels);
    layout.height = static_cast<std::int32_t>(pixels.size()) / across;
  }
  const bool fits = !pixels.empty() && layout.bytes() == pixels.size();
  Decoder& decoder = *decoders[static_cast<std::size_t>(at(0)) % decoders.size()];
  if (decode_guarded(decoder, sample).empty() == fits) {
    throw std::logic_error(fits ? "refused, though they fit" : "taken, though they do not fit");
  }
  return fits;
}

/// Grey and colours, in planes and not, for the first crops.
inline std::vector<std::vector<std::byte>> raw_corpus() {
  std::vector<std::vector<std::byte>> corpus;
  for (unsigned i = 0; i < 16; ++i) {
    const unsigned width = 5 + 3 * i, height = 33 - 2 * i, channels = i % 2 == 0 ? 1 : 3;
    std::vector<std::byte> bytes;
    for (const unsigned byte : {i, width, 0U, height, 0U, i % 8, i}) {
      bytes.push_back(static_cast<std::byte>(byte));
    }
    for (unsigned k = 0; k < width * height * channels; ++k) {
      bytes.push_back(static_cast<std::byte>(k * 7));
    }
    corpus.push_back(bytes);
  }
  return corpus;
}

}  // namespace penstock
