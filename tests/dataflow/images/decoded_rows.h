// SPDX-License-Identifier: Apache-2.0
// Decoders with the options of a test, and the rows of a batch that they fill.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "dataflow/decoder.h"

namespace penstock {

/// Of the text of a component, such as "jpeg:crop=full".
inline std::unique_ptr<Decoder> make_decoder(std::string_view text = "jpeg") {
  const ComponentText parts = parse_component(text);
  const DecoderEntry& entry = find_entry(decoder_table(), parts.name);
  return entry.make(Options(entry.name, entry.options, parts));
}

/// Throws DataError.
inline std::vector<std::byte> decoded_row(Decoder& decoder, const Sample& sample,
                                          const ImageShape& shape, Random random) {
  std::vector<std::byte> row(shape.elements());
  decoder.decode(sample, {row.data(), shape, DType::u8, std::ptrdiff_t{3} * shape.width}, random);
  return row;
}

/// Of sample number `seed`, with that seed. Throws DataError.
inline std::vector<std::byte> decoded_row(Decoder& decoder, const std::vector<std::byte>& file,
                                          const ImageShape& shape, std::uint64_t seed = 1) {
  Sample sample;
  sample.lent = file;
  sample.index = seed;
  sample.file = "some/file.JPEG";
  return decoded_row(decoder, sample, shape, Random(seed));
}

}  // namespace penstock
