// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/tar.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "dataflow/error.h"
#include "dataflow/options.h"

namespace penstock::datasets {
namespace {

/// Limit for a name, and for the content of a pax header.
constexpr std::uint64_t kMaxExtension = 1U << 20;
/// No file is this large, so sums of sizes stay far below 64 bits.
constexpr std::uint64_t kMaxSize = std::uint64_t{1} << 60;

/// A text that fills its field or ends with a zero.
std::string_view text_of(std::string_view field) noexcept {
  return field.substr(0, field.find('\0'));
}

/// Parses octal digits among spaces and zeros or, if the first bit is set, a number of base 256.
std::uint64_t parse_field(std::string_view field) {
  const auto byte_at = [&](std::size_t i) { return static_cast<std::uint8_t>(field[i]); };
  std::uint64_t value = 0;
  if ((byte_at(0) & 0x80) != 0) {
    if (byte_at(0) != 0x80) throw DataError("a header has a size below 0, or one beyond all files");
    for (std::size_t i = 1; i < field.size(); ++i) {
      if (value > kMaxSize >> 8) throw DataError("a header has a size beyond all files");
      value = value << 8 | byte_at(i);
    }
    return value;
  }
  std::string_view digits = text_of(field);
  while (!digits.empty() && digits.front() == ' ') digits.remove_prefix(1);
  while (!digits.empty() && digits.back() == ' ') digits.remove_suffix(1);
  for (const char digit : digits) {
    if (digit < '0' || digit > '7') throw DataError("a header has a number that is not octal");
    value = value << 3 | static_cast<std::uint64_t>(digit - '0');
  }
  return value;
}

/// Parses records "LENGTH KEY=VALUE\n", where LENGTH counts the whole record. Calls use(key,
/// value).
template <typename Use>
void for_each_pax_record(std::string_view text, const Use& use) {
  while (!text.empty()) {
    std::size_t length = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
    const auto digits = static_cast<std::size_t>(end - text.data());
    if (error != std::errc() || length > text.size() || length < digits + 3 ||
        text[digits] != ' ' || text[length - 1] != '\n') {
      throw DataError("a pax header has an invalid record");
    }
    const std::string_view record = text.substr(digits + 1, length - digits - 2);
    const std::size_t equals = record.find('=');
    if (equals == std::string_view::npos) throw DataError("a pax header has a record without '='");
    use(record.substr(0, equals), record.substr(equals + 1));
    text.remove_prefix(length);
  }
}

}  // namespace

/// The header fields that this reader uses.
struct TarReader::Header {
  std::string_view block;

  bool is_zero() const noexcept {
    return std::ranges::all_of(block, [](char byte) { return byte == '\0'; });
  }
  /// Compares the checksum: the sum of all bytes, with its own field as spaces. Some writers use
  /// signed bytes.
  bool sum_matches() const {
    std::uint64_t plain = 0, with_signs = 0;
    for (std::size_t i = 0; i < block.size(); ++i) {
      const char byte = i >= 148 && i < 156 ? ' ' : block[i];
      plain += static_cast<std::uint8_t>(byte);
      with_signs += static_cast<std::uint64_t>(static_cast<signed char>(byte));
    }
    const std::uint64_t sum = parse_field(block.substr(148, 8));
    return sum == plain || sum == with_signs;
  }
  std::string name() const {
    const std::string_view short_name = text_of(block.substr(0, 100));
    // GNU tar, which has another magic, keeps times where POSIX has the front of a long name.
    const bool is_posix = block.substr(257, 6) == std::string_view("ustar\0", 6);
    const std::string_view front = is_posix ? text_of(block.substr(345, 155)) : "";
    if (front.empty()) return std::string(short_name);
    return std::string(front) + '/' + std::string(short_name);
  }
  std::uint64_t bytes() const {
    const std::uint64_t value = parse_field(block.substr(124, 12));
    if (value > kMaxSize) throw DataError("a header has a size beyond all files");
    return value;
  }
  char type() const noexcept { return block[156]; }
  /// Links, devices, folders and pipes have no data, whatever their size field says.
  bool has_data() const noexcept { return type() < '1' || type() > '6'; }
};

bool TarReader::next(TarMember& member) {
  finish();
  begin_ = stream_.position();
  Extension extension;
  while (read_block()) {
    const Header header{{reinterpret_cast<const char*>(block_.data()), kBlock}};
    if (header.is_zero()) {
      check_end();
      return false;
    }
    if (!header.sum_matches()) throw DataError("a header of the tar does not match its checksum");
    const char type = header.type();
    if (type == 'L') {
      extension.name = text_of(read_extension(header.bytes()));
      continue;
    }
    if (type == 'x' || type == 'X') {
      for_each_pax_record(read_extension(header.bytes()),
                          [&](std::string_view key, std::string_view value) {
                            if (key == "path") {
                              extension.name = value;
                            } else if (key == "size") {
                              extension.bytes = parse_number<std::uint64_t>(value);
                              if (extension.bytes.value_or(kMaxSize + 1) > kMaxSize)
                                throw DataError("a pax header has an invalid size");
                            } else if (key.starts_with("GNU.sparse.")) {
                              throw DataError("the tar has a sparse file, which is unsupported");
                            }
                          });
      continue;
    }
    if (type == 'S') throw DataError("the tar has a sparse file, which is unsupported");
    std::uint64_t bytes = extension.bytes ? *extension.bytes : header.bytes();
    if (!header.has_data()) bytes = 0;
    if (bytes > max_bytes_) {
      throw DataError("the tar has a file of {} bytes, and max_record is {}", bytes, max_bytes_);
    }
    unread_ = bytes;
    padding_ = (kBlock - bytes % kBlock) % kBlock;
    member.name = extension.name ? std::move(*extension.name) : header.name();
    const bool is_regular =
        type == '0' || type == '7' || (type == '\0' && !member.name.ends_with('/'));
    if (is_regular) {
      member.begin = begin_;
      member.data = stream_.position();
      member.bytes = bytes;
      return true;
    }
    finish();
    // Global headers ('g') and long names of links ('K') come before a member.
    if (type == 'g' || type == 'K') continue;
    begin_ = stream_.position();
    extension = {};
  }
  return false;
}

void TarReader::read(std::span<std::byte> to) {
  PENSTOCK_ASSERT(to.size() <= unread_);
  if (stream_.read(to) != to.size()) throw DataError("the tar is cut off in one of its files");
  unread_ -= to.size();
}

void TarReader::finish() {
  const std::uint64_t rest = unread_ + padding_;
  unread_ = padding_ = 0;
  if (stream_.skip(rest) != rest) throw DataError("the tar is cut off in one of its files");
}

/// False: the stream has ended before the block.
bool TarReader::read_block() {
  const std::size_t count = stream_.read(block_);
  if (count > 0 && count < kBlock) throw DataError("the tar is cut off in a header");
  return count > 0;
}

/// An archive ends with two blocks of zeros; some writers leave one out.
void TarReader::check_end() {
  if (read_block() && !Header{{reinterpret_cast<const char*>(block_.data()), kBlock}}.is_zero()) {
    throw DataError("the tar has zeros instead of a header");
  }
}

std::string TarReader::read_extension(std::uint64_t bytes) {
  if (bytes > kMaxExtension) {
    throw DataError("a name or a pax header of the tar has more than a mebibyte");
  }
  std::string text(bytes, '\0');
  unread_ = bytes;
  padding_ = (kBlock - bytes % kBlock) % kBlock;
  read(std::as_writable_bytes(std::span(text)));
  finish();
  return text;
}

}  // namespace penstock::datasets
