// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/mds.h"

#include <charconv>
#include <limits>

#include "dataflow/datasets/mds_label.h"
#include "dataflow/error.h"
#include "dataflow/values/value_at.h"

namespace penstock::datasets {
namespace {

struct WholeNumber {
  std::string_view encoding;
  std::uint32_t bytes;  ///< 0: digits
  bool negative;        ///< may be negative
};

constexpr WholeNumber kWholeNumbers[] = {
    {"int", 8, true},    {"int64", 8, true},   {"int32", 4, true},   {"int16", 2, true},
    {"int8", 1, true},   {"uint64", 8, false}, {"uint32", 4, false}, {"uint16", 2, false},
    {"uint8", 1, false}, {"str_int", 0, true},
};

const WholeNumber* find_whole_number(std::string_view encoding) noexcept {
  for (const WholeNumber& row : kWholeNumbers) {
    if (row.encoding == encoding) return &row;
  }
  return nullptr;
}

}  // namespace

bool is_mds_label(const MdsColumn& column) noexcept {
  const WholeNumber* const row = find_whole_number(column.encoding);
  return row != nullptr && row->bytes == column.bytes;
}

std::int32_t parse_mds_label(std::span<const std::byte> bytes, const MdsColumn& column) {
  const WholeNumber* const row = find_whole_number(column.encoding);
  std::int64_t label = -1;
  switch (column.bytes) {
    case 0: {
      const char* const begin = reinterpret_cast<const char*>(bytes.data());
      const char* const end = begin + bytes.size();
      const auto [last, error] = std::from_chars(begin, end, label);
      if (error != std::errc() || last != end) label = -1;
      break;
    }
    case 1:
      label = row->negative ? std::int64_t{values::value_at<std::int8_t>(bytes, 0)}
                            : std::int64_t{values::value_at<std::uint8_t>(bytes, 0)};
      break;
    case 2:
      label = row->negative ? std::int64_t{values::value_at<std::int16_t>(bytes, 0)}
                            : std::int64_t{values::value_at<std::uint16_t>(bytes, 0)};
      break;
    case 4:
      label = row->negative ? std::int64_t{values::value_at<std::int32_t>(bytes, 0)}
                            : std::int64_t{values::value_at<std::uint32_t>(bytes, 0)};
      break;
    default:  // a uint64 that looks negative here is too large anyway
      label = values::value_at<std::int64_t>(bytes, 0);
  }
  if (label < 0 || label > std::numeric_limits<std::int32_t>::max()) {
    throw DataError("its label in column '" + column.name + "' numbers no class");
  }
  return static_cast<std::int32_t>(label);
}

void check_mds_shard(std::span<const std::byte> file, const MdsShard& shard) {
  if (file.size() != shard.bytes) {
    throw DataError("has " + std::to_string(file.size()) + " bytes, and its index says " +
                    std::to_string(shard.bytes));
  }
  if (file.size() < shard.samples_at()) {
    throw DataError("has no room for the offsets of " + std::to_string(shard.samples) + " samples");
  }
  if (const auto samples = values::value_at<std::uint32_t>(file, 0); samples != shard.samples) {
    throw DataError("has " + std::to_string(samples) + " samples, and its index says " +
                    std::to_string(shard.samples));
  }
}

std::span<const std::byte> mds_sample(std::span<const std::byte> file, const MdsShard& shard,
                                      std::uint64_t index) {
  const auto begin = values::value_at<std::uint32_t>(file, 4 * (index + 1)),
             end = values::value_at<std::uint32_t>(file, 4 * (index + 2));
  if (begin < shard.samples_at() || end < begin || end > file.size()) {
    throw DataError("its offsets are byte " + std::to_string(begin) + " to byte " +
                    std::to_string(end) + ", which is not a range of samples");
  }
  return file.subspan(begin, end - begin);
}

MdsImage parse_mds_sample(std::span<const std::byte> sample, const MdsShard& shard,
                          const MdsColumns& columns) {
  std::uint64_t sizes_end = 0;
  for (const MdsColumn& column : shard.columns) sizes_end += column.bytes == 0 ? 4 : 0;
  std::uint64_t at = sizes_end, size_at = 0;
  std::span<const std::byte> image, label;
  if (sample.size() < sizes_end) {
    throw DataError("it has " + std::to_string(sample.size()) +
                    " bytes, fewer than the sizes of its columns");
  }
  for (std::size_t i = 0; i < shard.columns.size(); ++i) {
    std::uint64_t bytes = shard.columns[i].bytes;
    if (bytes == 0) {
      bytes = values::value_at<std::uint32_t>(sample, size_at);
      size_at += 4;
    }
    if (bytes > sample.size() - at) {
      throw DataError("its column '" + shard.columns[i].name + "' should have " +
                      std::to_string(bytes) + " bytes, and " + std::to_string(sample.size() - at) +
                      " are left");
    }
    if (i == columns.image) image = sample.subspan(at, bytes);
    if (i == columns.label) label = sample.subspan(at, bytes);
    at += bytes;
  }
  if (at != sample.size()) {
    throw DataError("it has " + std::to_string(sample.size() - at) +
                    " bytes that are in none of its columns");
  }
  if (image.empty()) {
    throw DataError("its column '" + shard.columns[columns.image].name + "' is empty");
  }
  return {parse_mds_label(label, shard.columns[columns.label]), image};
}

}  // namespace penstock::datasets
