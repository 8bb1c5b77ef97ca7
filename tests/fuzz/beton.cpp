// SPDX-License-Identifier: Apache-2.0
// .beton files: their layout, every row, and where its image lies.
#include "dataflow/datasets/beton.h"
#include "dataflow/datasets/choose_column.h"

#include <cstdint>
#include <optional>

#include "tests/fuzz/target.h"

namespace penstock::fuzz {

std::size_t beton(std::span<const std::byte> input) {
  if (const std::optional<datasets::JpegSize> size = datasets::find_jpeg_size(input)) {
    ensure(size->width > 0 && size->height > 0, "an image without pixels");
  }
  const datasets::BetonLayout layout = datasets::parse_beton_layout(input);
  const datasets::BetonField& image = layout.fields[datasets::choose_beton_field(
      layout, datasets::BetonType::image,
      {"", "RGB images", "beton:image", datasets::kUsualImages})];
  const datasets::BetonField& label = layout.fields[datasets::choose_beton_field(
      layout, datasets::BetonType::integer,
      {"", "whole numbers", "beton:label", datasets::kUsualLabels})];
  const datasets::BetonAllocations allocations(input, layout);
  std::size_t images = 0;
  for (std::uint64_t i = 0; i < layout.samples; ++i) {
    const auto read_row = [&](std::span<const std::byte> row) -> std::size_t {
      const datasets::BetonSample sample = datasets::parse_beton_row(row, image, label);
      ensure(sample.label >= 0, "a label out of range");
      const std::uint32_t bytes = allocations.bytes_at(sample.image_at);
      if (bytes == 0) return 0;
      ensure(sample.image_at >= layout.data_at && sample.image_at <= input.size() &&
                 bytes <= input.size() - sample.image_at,
             "an image outside the data");
      return 1;
    };
    images +=
        use_input(read_row, input.subspan(layout.rows_at + i * layout.row_bytes, layout.row_bytes));
  }
  return images;
}

}  // namespace penstock::fuzz
