// SPDX-License-Identifier: Apache-2.0
// A text as the bytes of a file or message.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace penstock {

inline std::vector<std::byte> bytes_of_text(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

}  // namespace penstock
