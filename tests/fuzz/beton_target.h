// SPDX-License-Identifier: Apache-2.0
// What the fuzzer and its deterministic twin do with the bytes of a .beton file. Throws
// std::logic_error where an answer contradicts itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/packed/beton.h"

namespace penstock {

/// How many images there are; -1: it is no such file.
inline std::int64_t try_beton(std::span<const std::byte> file) {
  try {
    const BetonLayout layout = parse_beton_layout(file);
    const BetonField& image = layout.fields[choose_beton_field(
        layout, BetonType::image, {"", "RGB images", "beton:image", kUsualImages})];
    const BetonField& label = layout.fields[choose_beton_field(
        layout, BetonType::integer, {"", "whole numbers", "beton:label", kUsualLabels})];
    const BetonAllocations allocations(file, layout);
    std::int64_t images = 0;
    for (std::uint64_t i = 0; i < layout.samples; ++i) {
      // A block of exactly this size, so that a sanitizer sees one byte too many.
      const auto begin =
          file.begin() + static_cast<std::ptrdiff_t>(layout.rows_at + i * layout.row_bytes);
      const std::vector<std::byte> row(begin,
                                       begin + static_cast<std::ptrdiff_t>(layout.row_bytes));
      try {
        const BetonSample sample = parse_beton_row(row, image, label);
        if (sample.label < 0) throw std::logic_error("a label out of range");
        const std::uint32_t bytes = allocations.bytes_at(sample.image_at);
        if (bytes == 0) continue;
        if (sample.image_at < layout.data_at || sample.image_at > file.size() ||
            bytes > file.size() - sample.image_at) {
          throw std::logic_error("an image outside the data");
        }
        ++images;
      } catch (const DataError&) {
      }
    }
    return images;
  } catch (const DataError&) {
    return -1;
  }
}

/// Where the parts of good_beton() begin.
struct GoodBeton {
  std::size_t rows_at = 24 + 2 * 1041, row_bytes = 24, data_at = 3000, samples = 4;
};
inline constexpr GoodBeton kGoodBeton;

/// Four samples of eight bytes each, of fields `x` (image) and `y` (int).
inline std::vector<std::byte> good_beton() {
  const std::size_t table = kGoodBeton.data_at + kGoodBeton.samples * 8;
  std::vector<std::byte> file(table + kGoodBeton.samples * 24);
  const auto put = [&](std::size_t at, const auto& value) {
    std::memcpy(file.data() + at, &value, sizeof value);
  };
  put(0, std::uint16_t{2});
  put(2, std::uint16_t{2});
  put(4, std::uint32_t{1} << 21);
  put(8, std::uint64_t{kGoodBeton.samples});
  put(24, std::uint8_t{2});
  put(25, 'x');
  put(24 + 1041, std::uint8_t{1});
  put(25 + 1041, 'y');
  put(16, std::uint64_t{table});
  for (std::size_t i = 0; i < kGoodBeton.samples; ++i) {
    const std::size_t row = kGoodBeton.rows_at + i * kGoodBeton.row_bytes;
    put(row + 5, std::uint64_t{kGoodBeton.data_at + 8 * i});
    put(row + 16, static_cast<std::int64_t>(i));
    put(table + 24 * i, std::uint64_t{i});
    put(table + 24 * i + 8, std::uint64_t{kGoodBeton.data_at + 8 * i});
    put(table + 24 * i + 16, std::uint64_t{8});
  }
  return file;
}

}  // namespace penstock
