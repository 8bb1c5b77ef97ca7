// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/recordio.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>

#include "dataflow/error.h"
#include "dataflow/values/value_at.h"

namespace penstock::datasets {
namespace {

constexpr std::uint32_t kMagic = 0xced7230a;
constexpr std::uint64_t kHeadBytes = 8;
constexpr std::uint64_t kImageHeadBytes = 24;

enum class Flag : std::uint8_t { whole, first, middle, last };

struct Part {
  Flag flag{};
  std::uint32_t bytes = 0;  ///< of data

  std::uint64_t padded() const noexcept { return kHeadBytes + (std::uint64_t{bytes} + 3) / 4 * 4; }
  bool begins() const noexcept { return flag == Flag::whole || flag == Flag::first; }
  bool ends() const noexcept { return flag == Flag::whole || flag == Flag::last; }
};

[[noreturn]] void refuse(std::uint64_t offset, const std::string& problem) {
  throw DataError((offset == 0 ? "" : "its part at byte " + std::to_string(offset) + ": ") +
                  problem);
}

/// The part at `offset` of `bytes`. Offsets in messages are relative to `begin`.
Part part_at(std::span<const std::byte> bytes, std::uint64_t offset, std::uint64_t begin) {
  const std::uint64_t left = bytes.size() - std::min<std::uint64_t>(offset, bytes.size());
  if (left < kHeadBytes) {
    refuse(offset - begin, "the file ends after " + std::to_string(left) + " bytes");
  }
  if (values::value_at<std::uint32_t>(bytes, offset) != kMagic) {
    refuse(offset - begin, "it does not begin with the magic number");
  }
  const auto word = values::value_at<std::uint32_t>(bytes, offset + 4);
  const Part part{static_cast<Flag>(word >> 29), word & ((1U << 29) - 1)};
  if (part.flag > Flag::last) {
    refuse(offset - begin, "its flag is " + std::to_string(word >> 29) + "; expected 0 to 3");
  }
  if (part.begins() != (offset == begin)) {
    refuse(offset - begin, part.begins() ? "another record begins before this one ends"
                                         : "it continues a record that has no beginning");
  }
  if (part.padded() > left) {
    refuse(offset - begin, "it should have " + std::to_string(part.bytes) + " bytes, and " +
                               std::to_string(left - kHeadBytes) + " are left");
  }
  return part;
}

std::int32_t as_label(float value) {
  // A whole float below 2^31 fits; NaN fails both checks.
  if (!(value >= 0 && value < 2147483648.0F) || std::trunc(value) != value) {
    throw DataError("its label is " + std::to_string(value) +
                    ", which is not the number of a class");
  }
  return static_cast<std::int32_t>(value);
}

}  // namespace

std::uint64_t recordio_end(std::span<const std::byte> file, std::uint64_t offset) {
  std::uint64_t at = offset;
  for (Part part; !(at > offset && part.ends()); at += part.padded()) {
    part = part_at(file, at, offset);
  }
  return at;
}

bool recordio_begins(std::span<const std::byte> file, std::uint64_t offset) noexcept {
  if (offset > file.size() || file.size() - offset < kHeadBytes) return false;
  const std::uint32_t flag = values::value_at<std::uint32_t>(file, offset + 4) >> 29;
  return values::value_at<std::uint32_t>(file, offset) == kMagic && flag <= 1;
}

std::uint64_t find_recordio(std::span<const std::byte> file, std::uint64_t offset) noexcept {
  for (; offset + kHeadBytes <= file.size(); offset += 4) {
    if (recordio_begins(file, offset)) return offset;
  }
  return file.size();
}

std::span<const std::byte> recordio_data(std::span<const std::byte> record,
                                         std::vector<std::byte>& joined) {
  Part part = part_at(record, 0, 0);
  if (part.flag == Flag::whole) return record.subspan(kHeadBytes, part.bytes);
  joined.clear();
  for (std::uint64_t at = 0;; part = part_at(record, at, 0)) {
    const std::byte* const data = record.data() + at + kHeadBytes;
    joined.insert(joined.end(), data, data + part.bytes);
    if (part.ends()) return joined;
    const auto* const magic = reinterpret_cast<const std::byte*>(&kMagic);
    joined.insert(joined.end(), magic, magic + sizeof kMagic);
    at += part.padded();
  }
}

PackedImage parse_packed_image(std::span<const std::byte> data) {
  if (data.size() < kImageHeadBytes) {
    throw DataError("it has " + std::to_string(data.size()) +
                    " bytes, fewer than the head of an image");
  }
  const auto flag = values::value_at<std::uint32_t>(data, 0);
  const std::uint64_t image_at = kImageHeadBytes + std::uint64_t{flag} * sizeof(float);
  if (image_at >= data.size()) {
    throw DataError(flag == 0 ? std::string("it has no image")
                              : "it should have " + std::to_string(flag) +
                                    " labels before its image, and has " +
                                    std::to_string(data.size() - kImageHeadBytes) + " bytes");
  }
  const auto label = values::value_at<float>(data, flag == 0 ? 4 : kImageHeadBytes);
  return {as_label(label), std::max(flag, 1U), data.subspan(image_at)};
}

std::vector<std::uint64_t> parse_recordio_index(std::string_view text) {
  std::vector<std::uint64_t> offsets;
  std::uint64_t number = 0;
  while (!text.empty()) {
    ++number;
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    const std::string_view digits = line.substr(std::min(line.find('\t'), line.size()));
    const char* const last = digits.data() + digits.size();
    std::uint64_t offset = 0;
    std::from_chars_result parsed{last, std::errc::invalid_argument};
    if (!digits.empty()) parsed = std::from_chars(digits.data() + 1, last, offset);
    if (parsed.ec != std::errc() || parsed.ptr != last || offset % 4 != 0) {
      throw DataError("line " + std::to_string(number) +
                      " is no key, tab and offset that is a multiple of 4");
    }
    offsets.push_back(offset);
  }
  std::ranges::sort(offsets);
  if (const auto twice = std::ranges::adjacent_find(offsets); twice != offsets.end()) {
    throw DataError("offset " + std::to_string(*twice) + " is there twice");
  }
  return offsets;
}

}  // namespace penstock::datasets
