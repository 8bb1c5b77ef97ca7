// SPDX-License-Identifier: Apache-2.0
// Parses FFCV's .beton files, version 2. Source of the layout: ffcv's types.py, writer.py and
// fields/.
//
//   head            u16 version | u16 fields | u32 page size | u64 samples | u64 allocations
//   fields          each u8 type | 16 bytes of name | 1024 bytes of arguments
//   rows            one for each sample: a value for each field, aligned as C aligns them
//   data            from the next page on; u64 pointers of rows are offsets in the file
//   allocations     up to the end of the file, each u64 sample | u64 pointer | u64 bytes
//
// An image in a row is u8 mode | u16 width | u16 height | u64 pointer, not aligned. Only the
// allocations store the length of its bytes. Functions throw DataError with only the problem as
// text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dataflow/datasets/choose_column.h"

namespace penstock::datasets {

enum class BetonType : std::uint8_t { real, integer, image, bytes, array, json, tensor };

struct BetonField {
  BetonType type{};
  std::string name;
  std::uint64_t offset = 0;  ///< in a row
};

struct BetonLayout {
  std::uint64_t samples = 0;
  std::uint64_t rows_at = 0, row_bytes = 0;
  std::uint64_t data_at = 0;  ///< after the rows; no data are before it
  std::uint64_t allocations_at = 0;
  std::vector<BetonField> fields;
};

/// Makes sure that all parts are within the file.
BetonLayout parse_beton_layout(std::span<const std::byte> file);

/// The index of the field of `type`, as choose_column() finds it. A file stores 16 characters of a
/// name, so only the first 16 of the requested name are compared.
std::size_t choose_beton_field(const BetonLayout& layout, BetonType type,
                               ColumnArguments arguments);

struct BetonSample {
  std::int32_t label = 0;
  std::uint64_t image_at = 0;  ///< offset of a JPEG image, from the row
};

/// Parses the row of a sample, which has the layout's `row_bytes`.
BetonSample parse_beton_row(std::span<const std::byte> row, const BetonField& image,
                            const BetonField& label);

/// True if the row's image is uncompressed.
bool is_raw_in_beton(std::span<const std::byte> row, const BetonField& image) noexcept;

struct JpegSize {
  std::uint16_t width = 0, height = 0;
};

/// The size in the frame header of a JPEG file (ITU T.81, B.2.2), which a row of .beton states.
/// Empty if there is none.
std::optional<JpegSize> find_jpeg_size(std::span<const std::byte> file) noexcept;

/// Finds the length of data by their pointers.
class BetonAllocations {
 public:
  /// Keeps the allocations between the rows and the table of allocations; ignores others.
  BetonAllocations(std::span<const std::byte> file, const BetonLayout& layout);

  /// The number of bytes at `offset`; 0 if there is no valid allocation.
  std::uint32_t bytes_at(std::uint64_t offset) const noexcept;

 private:
  struct Place {
    std::uint64_t offset = 0;
    std::uint32_t bytes = 0;  // at most a page
    auto operator<=>(const Place&) const = default;
  };
  std::vector<Place> places_;  // sorted
};

}  // namespace penstock::datasets
