// SPDX-License-Identifier: Apache-2.0
#include "dataflow/images/file_kind.h"

#include <algorithm>
#include <cstdio>
#include <string_view>

namespace penstock {

std::string describe_first_bytes(std::span<const std::byte> bytes) {
  struct Magic {
    std::string_view bytes, name;
  };
  static constexpr Magic kMagics[] = {{"\x89PNG", "a PNG image"},
                                      {"GIF8", "a GIF image"},
                                      {"RIFF", "a WebP image"},
                                      {"BM", "a BMP image"},
                                      {"II*", "a TIFF image"},
                                      {"MM", "a TIFF image"},
                                      {"<", "an HTML or XML page"},
                                      {"\x1f\x8b", "a gzip file"},
                                      {"version https://git-lfs", "a Git LFS pointer"}};
  if (bytes.empty()) return "it is empty";
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (const Magic& magic : kMagics) {
    if (text.starts_with(magic.bytes)) return "it looks like " + std::string(magic.name);
  }
  std::string hex = "it begins with";
  for (const std::byte byte : bytes.first(std::min<std::size_t>(bytes.size(), 8))) {
    char digits[4];
    std::snprintf(digits, sizeof digits, " %02x", std::to_integer<unsigned>(byte));
    hex += digits;
  }
  return hex;
}

}  // namespace penstock
