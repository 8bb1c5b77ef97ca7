// SPDX-License-Identifier: Apache-2.0
// FFCV's .beton files, version 2. Layout: ffcv's types.py, writer.py and fields/.
//
//   head            u16 version | u16 fields | u32 page size | u64 samples | u64 allocations
//   fields          each u8 type | 16 bytes of name | 1024 bytes of arguments
//   rows            one for each sample: a value for each field, aligned as C aligns them
//   data            from the next page on; u64 pointers of rows are offsets in the file
//   allocations     up to the end of the file, each u64 sample | u64 pointer | u64 bytes
//
// An image in a row is u8 mode | u16 width | u16 height | u64 pointer, not aligned. How long its
// bytes are is said by the allocations alone. Functions throw DataError, with the problem alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dataflow/packed/column_choice.h"

namespace penstock {

enum class BetonType : std::uint8_t { real, integer, image, bytes, array, json, tensor };

struct BetonField {
  BetonType type{};
  std::string name;
  std::uint64_t offset = 0;  ///< in a row
};

struct BetonLayout {
  std::uint64_t samples = 0;
  std::uint64_t rows_at = 0, row_bytes = 0;
  std::uint64_t data_at = 0;  ///< behind the rows: no data lie before
  std::uint64_t allocations_at = 0;
  std::vector<BetonField> fields;
};

/// All parts are within the file.
BetonLayout parse_beton_layout(std::span<const std::byte> file);

/// The place among the fields of the one of `type`, as choose_column() finds it. A file keeps 16
/// characters of a name, and so no more of the wish's are compared.
std::size_t choose_beton_field(const BetonLayout& layout, BetonType type, ColumnWish wish);

struct BetonSample {
  std::int32_t label = 0;
  std::uint64_t image_at = 0;  ///< where a JPEG begins, as the row has it
};

/// Takes apart the row of a sample, `row_bytes` of its layout.
BetonSample parse_beton_row(std::span<const std::byte> row, const BetonField& image,
                            const BetonField& label);

/// Whether the row's image is uncompressed.
bool is_raw_in_beton(std::span<const std::byte> row, const BetonField& image) noexcept;

/// Where data lie, to be found by their pointers.
class BetonAllocations {
 public:
  /// Takes those that lie between the rows and the allocations, and leaves out others.
  BetonAllocations(std::span<const std::byte> file, const BetonLayout& layout);

  /// How many bytes lie at `offset`; 0: nothing was put there, or nothing that fits.
  std::uint32_t bytes_at(std::uint64_t offset) const noexcept;

 private:
  struct Place {
    std::uint64_t offset = 0;
    std::uint32_t bytes = 0;  // a page at most
    auto operator<=>(const Place&) const = default;
  };
  std::vector<Place> places_;  // sorted
};

}  // namespace penstock
