// SPDX-License-Identifier: Apache-2.0
#include "dataflow/images/normalising_decoder.h"

#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/images/normalisation.h"

namespace penstock {
namespace {

class NormalisingDecoder final : public Decoder {
 public:
  explicit NormalisingDecoder(std::unique_ptr<Decoder> decoder) : decoder_(std::move(decoder)) {}

  void decode(const Sample& sample, const ImageView& row, Random& random) override {
    const std::ptrdiff_t line = std::ptrdiff_t{row.shape.width} * row.shape.channels;
    PENSTOCK_ASSERT(row.row_bytes == line * static_cast<std::ptrdiff_t>(size_of(row.dtype)));
    bytes_.resize(row.shape.elements());
    decoder_->decode(
        sample, {reinterpret_cast<std::byte*>(bytes_.data()), row.shape, DType::u8, line}, random);
    normalise(bytes_, row.shape.channels, row.dtype, row.data);
  }

 private:
  const std::unique_ptr<Decoder> decoder_;
  std::vector<std::uint8_t> bytes_;
};

}  // namespace

std::unique_ptr<Decoder> make_normalising_decoder(std::unique_ptr<Decoder> decoder) {
  return std::make_unique<NormalisingDecoder>(std::move(decoder));
}

}  // namespace penstock
