// SPDX-License-Identifier: Apache-2.0
// Writes .npy files from the definition of their format.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "tests/support/text_bytes.h"

namespace penstock {

/// `header` is the dictionary's text.
inline std::vector<std::byte> npy_file(std::string header, std::span<const std::byte> data,
                                       int version = 1) {
  const std::size_t before = version == 1 ? 10 : 12;
  header += std::string(63 - (before + header.size()) % 64, ' ') + '\n';
  std::string text = "\x93NUMPY";
  text += static_cast<char>(version);
  text += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) {
    text += static_cast<char>(header.size() >> 8 * i & 0xff);
  }
  text += header;
  std::vector<std::byte> bytes = bytes_of_text(text);
  bytes.insert(bytes.end(), data.begin(), data.end());
  return bytes;
}

}  // namespace penstock
