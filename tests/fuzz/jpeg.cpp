// SPDX-License-Identifier: Apache-2.0
// The jpeg decoder: decode a file through a chain of transforms, which its checksum chooses, into a
// row between guards. libjpeg alone has to give the same pixels and the same verdict.
#include <memory>
#include <string>

#include "dataflow/images/augmentation.h"
#include "dataflow/values/crc32c.h"
#include "tests/fuzz/guarded_row.h"

namespace penstock {
extern const DecoderEntry jpeg_decoder;
}  // namespace penstock

namespace penstock::fuzz {
namespace {

struct Chain {
  std::unique_ptr<Decoder> own, libjpeg;
  bool region = false;
};

/// Every crop, resize method and distortion, each with both ways to decode.
std::vector<Chain> make_chains() {
  std::vector<Chain> chains;
  const auto make = [](const std::string& text) {
    return jpeg_decoder.make(
        Options(jpeg_decoder.name, jpeg_decoder.options, parse_component(text)));
  };
  const auto add = [&](std::string_view crop, const std::string& option) {
    for (const bool region : {true, false}) {
      // A header may be turned into one of any size, which must not be decoded at any price.
      const std::string text = "jpeg:max_pixels=200000,crop=" + std::string(crop) + option +
                               ",decode=" + (region ? "region" : "full");
      chains.push_back({make(text), make(text + ",engine=libjpeg"), region});
    }
  };
  for (const OptionValue& crop : kCropValues) {
    for (const OptionValue& resize : kResizeValues) {
      add(crop.name, ",resize=" + std::string(resize.name));
    }
    for (const OptionValue& color : kColourValues) {
      add(crop.name, ",color=" + std::string(color.name));
    }
  }
  return chains;
}

}  // namespace

std::size_t jpeg(std::span<const std::byte> input) {
  static const std::vector<Chain> chains = make_chains();
  const std::uint32_t sum = values::crc32c(input);
  const Chain& chain = chains[sum % chains.size()];
  Sample sample;
  sample.lent = input;
  sample.index = sum >> 16;
  sample.file = "fuzz.JPEG";
  const Bytes row = decode_guarded(*chain.own, sample);
  const Bytes expected = decode_guarded(*chain.libjpeg, sample);
  // Of a region libjpeg may read some rows more than we do, and find damage there.
  ensure(row == expected || (chain.region && expected.empty()), "other pixels than libjpeg's");
  return row.empty() ? 0 : 1;
}

}  // namespace penstock::fuzz
