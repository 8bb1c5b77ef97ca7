// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace penstock {

/// The format that begins with these bytes and is not decoded: "a WebP image", "a gzip file".
/// Empty: none that is known.
inline std::string_view undecoded_format(std::span<const std::byte> bytes) noexcept {
  struct Magic {
    std::string_view bytes, name;
  };
  static constexpr Magic kMagics[] = {
      {"GIF8", "a GIF image"},     {"RIFF", "a WebP image"},
      {"BM", "a BMP image"},       {"II*", "a TIFF image"},
      {"MM", "a TIFF image"},      {"<", "an HTML or XML page"},
      {"\x1f\x8b", "a gzip file"}, {"version https://git-lfs", "a Git LFS pointer"}};
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (const Magic& magic : kMagics) {
    if (text.starts_with(magic.bytes)) return magic.name;
  }
  return {};
}

}  // namespace penstock
