// SPDX-License-Identifier: Apache-2.0
// Pixels and their description: the decoder raw writes them into a row between guards. It takes
// exactly as many pixels as the description says.
//
// Of the input's first seven bytes one chooses the crop, two are the width, two the height, one has
// the channels, planes, and whether the height is the one that fits, and one is the sample's
// number. The others are pixels.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "tests/fuzz/guarded_row.h"

namespace penstock {
extern const DecoderEntry raw_decoder;
}  // namespace penstock

namespace penstock::fuzz {

std::size_t raw(std::span<const std::byte> input) {
  constexpr std::size_t kHead = 7;
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
  if (input.size() < kHead) return 0;
  const auto at = [&](std::size_t i) { return std::to_integer<std::int32_t>(input[i]); };
  const Bytes pixels(input.begin() + kHead, input.end());
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
  ensure(decode_guarded(decoder, sample).empty() != fits,
         fits ? "refused, though they fit" : "taken, though they do not fit");
  return fits ? 1 : 0;
}

}  // namespace penstock::fuzz
