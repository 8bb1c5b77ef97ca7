// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/beton.h"

#include <algorithm>
#include <limits>

#include "dataflow/error.h"
#include "dataflow/values/value_at.h"

namespace penstock::datasets {
namespace {

constexpr std::uint64_t kHeadBytes = 24, kNameBytes = 16, kFieldBytes = 1 + kNameBytes + 1024,
                        kAllocationBytes = 24;
constexpr std::uint8_t kJpegMode = 0, kRawMode = 1;

struct TypeRow {
  std::string_view name;
  std::uint64_t bytes, alignment;  ///< in a row
};

/// One row per BetonType, in its order.
constexpr TypeRow kTypes[] = {
    {"float", 8, 8}, {"int", 8, 8},   {"RGB image", 13, 1}, {"bytes", 16, 1},
    {"array", 8, 8}, {"JSON", 16, 1}, {"tensor", 8, 8},
};

constexpr std::uint64_t align(std::uint64_t offset, std::uint64_t alignment) {
  return (offset + alignment - 1) / alignment * alignment;
}

/// The text up to a zero. Control characters, which could change the terminal, become question
/// marks.
std::string name_of(std::span<const std::byte> characters) {
  std::string name;
  for (const std::byte character : characters) {
    if (character == std::byte{0}) break;
    const auto letter = static_cast<unsigned char>(character);
    name += letter < ' ' || letter == 127 ? '?' : static_cast<char>(letter);
  }
  return name;
}

}  // namespace

BetonLayout parse_beton_layout(std::span<const std::byte> file) {
  if (file.size() < kHeadBytes) {
    throw DataError("has " + std::to_string(file.size()) + " bytes, fewer than a head");
  }
  if (const auto version = values::value_at<std::uint16_t>(file, 0); version != 2) {
    throw DataError("has version " + std::to_string(version) + "; only version 2 is supported");
  }
  BetonLayout layout;
  const std::uint64_t fields = values::value_at<std::uint16_t>(file, 2);
  layout.samples = values::value_at<std::uint64_t>(file, 8);
  layout.allocations_at = values::value_at<std::uint64_t>(file, 16);
  layout.rows_at = kHeadBytes + fields * kFieldBytes;
  if (layout.rows_at > file.size()) {
    throw DataError("ends within the descriptions of its " + std::to_string(fields) + " fields");
  }
  std::uint64_t alignment = 1;
  for (std::uint64_t i = 0; i < fields; ++i) {
    const std::uint64_t at = kHeadBytes + i * kFieldBytes;
    const auto type = values::value_at<std::uint8_t>(file, at);
    BetonField field{static_cast<BetonType>(type), name_of(file.subspan(at + 1, kNameBytes))};
    if (type >= std::size(kTypes)) {
      throw DataError("has field '" + field.name + "' of type " + std::to_string(type) +
                      ", which is unsupported");
    }
    field.offset = align(layout.row_bytes, kTypes[type].alignment);
    layout.row_bytes = field.offset + kTypes[type].bytes;
    alignment = std::max(alignment, kTypes[type].alignment);
    layout.fields.push_back(std::move(field));
  }
  layout.row_bytes = align(layout.row_bytes, alignment);
  if (layout.allocations_at == 0) {
    throw DataError("is incomplete: its writer did not write the table of allocations");
  }
  if (layout.allocations_at > file.size() || layout.allocations_at < layout.rows_at ||
      (file.size() - layout.allocations_at) % kAllocationBytes != 0) {
    throw DataError("has " + std::to_string(file.size()) +
                    " bytes, which do not end with the table of allocations at byte " +
                    std::to_string(layout.allocations_at));
  }
  if (fields > 0 && layout.samples > (layout.allocations_at - layout.rows_at) / layout.row_bytes) {
    throw DataError("has no room for the rows of its " + std::to_string(layout.samples) +
                    " samples");
  }
  if ((file.size() - layout.allocations_at) / kAllocationBytes > layout.samples * fields) {
    throw DataError("has more allocations than " + std::to_string(layout.samples) + " samples of " +
                    std::to_string(fields) + " fields make");
  }
  layout.data_at = layout.rows_at + layout.samples * layout.row_bytes;
  return layout;
}

std::size_t choose_beton_field(const BetonLayout& layout, BetonType type,
                               ColumnArguments arguments) {
  arguments.name = arguments.name.substr(0, kNameBytes);
  std::vector<ColumnOffer> columns;
  for (const BetonField& field : layout.fields) {
    columns.push_back({field.name, std::string(kTypes[static_cast<std::size_t>(field.type)].name),
                       field.type == type});
  }
  return choose_column(columns, arguments);
}

bool is_raw_in_beton(std::span<const std::byte> row, const BetonField& image) noexcept {
  return values::value_at<std::uint8_t>(row, image.offset) == kRawMode;
}

BetonSample parse_beton_row(std::span<const std::byte> row, const BetonField& image,
                            const BetonField& label) {
  if (is_raw_in_beton(row, image)) {
    throw DataError(
        "its image is uncompressed (mode raw), and the decoder reads JPEG; pack it with "
        "RGBImageField(write_mode='jpg')");
  }
  if (const auto mode = values::value_at<std::uint8_t>(row, image.offset); mode != kJpegMode) {
    throw DataError("its image has mode " + std::to_string(mode) +
                    "; only mode 0 (jpg) is supported");
  }
  const auto number = values::value_at<std::int64_t>(row, label.offset);
  if (number < 0 || number > std::numeric_limits<std::int32_t>::max()) {
    throw DataError("its label is " + std::to_string(number) +
                    ", which is not the number of a class");
  }
  return {static_cast<std::int32_t>(number),
          values::value_at<std::uint64_t>(row, image.offset + 5)};
}

BetonAllocations::BetonAllocations(std::span<const std::byte> file, const BetonLayout& layout) {
  places_.reserve((file.size() - layout.allocations_at) / kAllocationBytes);
  for (std::uint64_t at = layout.allocations_at; at < file.size(); at += kAllocationBytes) {
    const auto offset = values::value_at<std::uint64_t>(file, at + 8),
               bytes = values::value_at<std::uint64_t>(file, at + 16);
    if (offset < layout.data_at || offset > layout.allocations_at ||
        bytes > layout.allocations_at - offset ||
        bytes > std::numeric_limits<std::uint32_t>::max()) {
      continue;
    }
    places_.push_back({offset, static_cast<std::uint32_t>(bytes)});
  }
  std::ranges::sort(places_);
}

std::uint32_t BetonAllocations::bytes_at(std::uint64_t offset) const noexcept {
  // An empty allocation may have the same offset as another; the last of equal offsets has the
  // bytes.
  const auto behind = std::ranges::upper_bound(places_, offset, {}, &Place::offset);
  if (behind == places_.begin() || std::prev(behind)->offset != offset) return 0;
  return std::prev(behind)->bytes;
}

}  // namespace penstock::datasets
