// SPDX-License-Identifier: Apache-2.0
// Rows of a batch from the decoder `jpeg` with the options of a test.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "dataflow/decoder.h"
#include "dataflow/entry.h"

namespace penstock {

inline std::unique_ptr<Decoder> make_jpeg_decoder(const std::string& options) {
  const DecoderEntry& entry = find_entry(decoder_table(), "jpeg");
  return entry.make(Options(entry.name, entry.options, parse_component("jpeg:" + options)));
}

/// Throws DataError.
inline std::vector<std::byte> decoded_row(Decoder& decoder, const std::vector<std::byte>& file,
                                          const ImageShape& shape, std::uint64_t seed = 1) {
  Sample sample;
  sample.lent = file;
  sample.index = seed;
  sample.file = "some/file.JPEG";
  std::vector<std::byte> row(shape.elements());
  Random random(seed);
  decoder.decode(sample, {row.data(), shape, DType::u8, std::ptrdiff_t{3} * shape.width}, random);
  return row;
}

}  // namespace penstock
