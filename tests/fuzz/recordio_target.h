// SPDX-License-Identifier: Apache-2.0
// What the fuzzer and its deterministic twin do with the bytes of a RecordIO file, read as its
// index as well. Throws std::logic_error where an answer contradicts itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/packed/recordio.h"

namespace penstock {

/// How many images there are.
inline std::size_t try_recordio(std::span<const std::byte> file) {
  std::size_t images = 0;
  std::vector<std::byte> joined;
  for (std::uint64_t at = 0, end = 0; at < file.size(); at = end) {
    try {
      end = recordio_end(file, at);
    } catch (const DataError&) {
      end = find_recordio(file, at + 4);
      if (end < file.size() && !recordio_begins(file, end)) throw std::logic_error("no beginning");
      if (end <= at || end > file.size()) throw std::logic_error("no way forward");
      continue;
    }
    if (end <= at || end > file.size()) throw std::logic_error("a record outside the file");
    const std::span<const std::byte> data = recordio_data(file.subspan(at, end - at), joined);
    if (data.size() > end - at) throw std::logic_error("more data than bytes");
    try {
      const PackedImage packed = parse_packed_image(data);
      if (packed.label < 0 || packed.labels == 0 || packed.image.empty() ||
          packed.image.data() + packed.image.size() != data.data() + data.size()) {
        throw std::logic_error("an image that is none");
      }
      ++images;
    } catch (const DataError&) {
    }
  }
  return images;
}

/// Whether it is an index.
inline bool try_recordio_index(std::span<const std::byte> file) {
  try {
    const std::vector<std::uint64_t> offsets =
        parse_recordio_index({reinterpret_cast<const char*>(file.data()), file.size()});
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      if (offsets[i] % 4 != 0 || (i > 0 && offsets[i] <= offsets[i - 1])) {
        throw std::logic_error("offsets that are not sorted");
      }
    }
    return true;
  } catch (const DataError&) {
    return false;
  }
}

inline constexpr std::string_view kGoodRecordioIndex = "0\t0\n1\t48\n12\t1024\n3\t123456789012\n";

/// Four images, one of them in three parts, with up to three labels.
inline std::vector<std::byte> good_recordio() {
  const auto append = [](std::vector<std::byte>& to, const auto& value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    to.insert(to.end(), bytes.begin(), bytes.end());
  };
  std::vector<std::byte> file;
  // One part: with a header and its labels, or without, and then so many bytes.
  const auto part = [&](std::uint32_t flag, std::uint32_t labels, bool head, std::size_t count) {
    std::vector<std::byte> data;
    if (head) {
      append(data, labels);
      append(data, 7.0F);
      data.resize(24);
      for (std::uint32_t i = 0; i < labels; ++i) append(data, static_cast<float>(i));
    }
    data.resize(data.size() + count, std::byte{0xd8});
    append(file, std::uint32_t{0xced7230a});
    append(file, flag << 29 | static_cast<std::uint32_t>(data.size()));
    data.resize((data.size() + 3) / 4 * 4);
    file.insert(file.end(), data.begin(), data.end());
  };
  part(0, 0, true, 9);
  part(1, 2, true, 8);
  part(2, 0, false, 4);
  part(3, 0, false, 0);
  part(0, 3, true, 40);
  part(0, 0, true, 1);
  return file;
}

inline std::vector<std::vector<std::byte>> recordio_corpus() {
  const auto index = std::as_bytes(std::span(kGoodRecordioIndex));
  return {good_recordio(), {index.begin(), index.end()}};
}

}  // namespace penstock
