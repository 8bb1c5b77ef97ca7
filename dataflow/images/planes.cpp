// SPDX-License-Identifier: Apache-2.0
#include "dataflow/images/planes.h"

#include <cstdint>
#include <vector>

#include "dataflow/error.h"

namespace penstock {
namespace {

template <typename Element>
void split(std::span<const std::byte> images, const ImageShape& shape, std::byte* to) {
  const std::size_t channels = static_cast<std::size_t>(shape.channels), row = shape.elements(),
                    plane = row / channels;
  const auto* from = reinterpret_cast<const Element*>(images.data());
  auto* out = reinterpret_cast<Element*>(to);
  for (std::size_t image = 0; image < images.size() / sizeof(Element) / row; ++image, from += row) {
    for (std::size_t channel = 0; channel < channels; ++channel, out += plane) {
      for (std::size_t i = 0; i < plane; ++i) out[i] = from[i * channels + channel];
    }
  }
}

class PlanarDecoder final : public DecoderOver {
 public:
  using DecoderOver::DecoderOver;

  void decode(const Sample& sample, const ImageView& row, Random& random) override {
    pixels_.resize(row.shape.elements() * size_of(row.dtype));
    ImageView interleaved = row;
    interleaved.data = pixels_.data();
    decoder_->decode(sample, interleaved, random);
    split_planes(pixels_, row.shape, size_of(row.dtype), row.data);
  }

 private:
  std::vector<std::byte> pixels_;
};

}  // namespace

void split_planes(std::span<const std::byte> images, const ImageShape& shape, std::size_t element,
                  std::byte* to) {
  switch (element) {
    case 1:
      return split<std::uint8_t>(images, shape, to);
    case 2:
      return split<std::uint16_t>(images, shape, to);
    default:
      PENSTOCK_ASSERT(element == 4);
      return split<std::uint32_t>(images, shape, to);
  }
}

std::unique_ptr<Decoder> make_planar_decoder(std::unique_ptr<Decoder> decoder) {
  return std::make_unique<PlanarDecoder>(std::move(decoder));
}

}  // namespace penstock
