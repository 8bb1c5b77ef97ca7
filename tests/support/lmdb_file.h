// SPDX-License-Identifier: Apache-2.0
// Writes small LMDB files from the definition of their format, and the values that image databases
// hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock {

using LmdbPair = std::pair<std::string, std::vector<std::byte>>;

inline void put_number(std::vector<std::byte>& bytes, std::size_t at, std::uint64_t value,
                       std::size_t width) {
  for (std::size_t i = 0; i < width; ++i) bytes[at + i] = static_cast<std::byte>(value >> 8 * i);
}

/// One leaf page with all entries, in the order of their keys. Values that need more than a quarter
/// of a page are in overflow pages.
inline std::vector<std::byte> lmdb_file(const std::vector<LmdbPair>& entries,
                                        std::size_t page_bytes = 4096) {
  std::vector<std::byte> file(3 * page_bytes);
  const auto number = [&](std::size_t at, std::uint64_t value, std::size_t width) {
    put_number(file, at, value, width);
  };
  const std::size_t leaf = 2 * page_bytes;
  std::size_t upper = page_bytes, count = 0;
  for (const auto& [key, value] : entries) {
    const bool big = value.size() > page_bytes / 4;
    upper -= (8 + key.size() + (big ? 8 : value.size()) + 1) / 2 * 2;
    number(leaf + 16 + 2 * count++, upper, 2);
    number(leaf + upper, value.size(), 4);
    number(leaf + upper + 4, big ? 1 : 0, 2);
    number(leaf + upper + 6, key.size(), 2);
    std::memcpy(file.data() + leaf + upper + 8, key.data(), key.size());
    std::size_t at = leaf + upper + 8 + key.size();
    if (big) {
      const std::size_t begin = file.size(), pages = (16 + value.size() - 1) / page_bytes + 1;
      number(at, begin / page_bytes, 8);
      file.resize(begin + pages * page_bytes);
      number(begin, begin / page_bytes, 8);
      number(begin + 10, 4, 2);
      number(begin + 12, pages, 4);
      at = begin + 16;
    }
    if (!value.empty()) std::memcpy(file.data() + at, value.data(), value.size());
  }
  number(leaf, 2, 8);
  number(leaf + 10, 2, 2);
  number(leaf + 12, 16 + 2 * count, 2);
  number(leaf + 14, upper, 2);
  for (const std::size_t page : {0U, 1U}) {
    const std::size_t meta = page * page_bytes + 16;
    number(page * page_bytes, page, 8);
    number(page * page_bytes + 10, 8, 2);
    number(meta, 0xbeefc0de, 4);
    number(meta + 4, 1, 4);
    number(meta + 16, file.size(), 8);
    number(meta + 24, page_bytes, 4);
    number(meta + 64, ~std::uint64_t{0}, 8);  // no free pages
    number(meta + 78, 1, 2);
    number(meta + 104, entries.size(), 8);
    number(meta + 112, page == 1 ? 2 : ~std::uint64_t{0}, 8);  // the newer meta page has the tree
    number(meta + 120, file.size() / page_bytes - 1, 8);
    number(meta + 128, page, 8);
  }
  return file;
}

/// A Datum in Caffe's format.
inline std::vector<std::byte> datum(int channels, int height, int width,
                                    const std::vector<std::byte>& data, std::int32_t label,
                                    bool encoded) {
  std::vector<std::byte> bytes;
  const auto varint = [&](std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<std::byte>(value | 0x80));
    bytes.push_back(static_cast<std::byte>(value));
  };
  if (!encoded) {
    for (const auto& [tag, value] : {std::pair{0x08, channels}, {0x10, height}, {0x18, width}}) {
      varint(static_cast<std::uint64_t>(tag));
      varint(static_cast<std::uint64_t>(value));
    }
  }
  varint(0x22);
  varint(data.size());
  bytes.insert(bytes.end(), data.begin(), data.end());
  varint(0x28);
  varint(static_cast<std::uint64_t>(std::int64_t{label}));
  if (encoded) {
    varint(0x38);
    varint(1);
  }
  return bytes;
}

/// [uint8 array of that shape, label] in the MessagePack format of tensorpack's LMDBSerializer.
inline std::vector<std::byte> msgpack_datapoint(const std::vector<int>& shape,
                                                const std::vector<std::byte>& data, int label) {
  std::vector<std::byte> bytes;
  const auto text = [&](std::string_view part) {
    for (const char c : part) bytes.push_back(static_cast<std::byte>(c));
  };
  const auto number = [&](std::uint64_t value, int width) {
    for (int i = width; i-- > 0;) bytes.push_back(static_cast<std::byte>(value >> 8 * i));
  };
  text("\x92\x85\xc4\x02nd\xc3\xc4\x04type\xa3|u1\xc4\x04kind\xc4");
  number(0, 1);
  text("\xc4\x05shape");
  number(0x90 + shape.size(), 1);
  for (const int length : shape) {
    number(0xd2, 1);
    number(static_cast<std::uint64_t>(length), 4);
  }
  text(
      "\xc4\x04"
      "data\xc6");
  number(data.size(), 4);
  bytes.insert(bytes.end(), data.begin(), data.end());
  number(0xcd, 1);
  number(static_cast<std::uint64_t>(label), 2);
  return bytes;
}

}  // namespace penstock
