// SPDX-License-Identifier: Apache-2.0
// Small changes of the kind that find faults in length checks.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>
#include <string_view>
#include <vector>

#include "dataflow/random.h"

namespace penstock {

inline void mutate(std::vector<std::byte>& bytes, Random& random) {
  constexpr std::int64_t kEdges[] = {0,         1,         -1,          2,         3,
                                     4,         8,         9,           INT32_MAX, INT32_MIN,
                                     INT64_MAX, INT64_MIN, UINT32_MAX,  256,       0x10000,
                                     1LL << 32, 1LL << 62, -(1LL << 32)};
  const std::size_t at = bytes.empty() ? 0 : random.below(bytes.size());
  switch (random.below(5)) {
    case 0:  // one bit
      if (!bytes.empty()) bytes[at] ^= static_cast<std::byte>(1U << random.below(8));
      break;
    case 1: {  // an edge value of four or eight bytes
      const std::int64_t value = kEdges[random.below(std::size(kEdges))];
      const std::size_t width = random.below(2) == 0 ? 4 : 8;
      if (at + width <= bytes.size()) std::memcpy(bytes.data() + at, &value, width);
      break;
    }
    case 2:
      bytes.resize(at);
      break;
    case 3:
      bytes.resize(bytes.size() + random.below(16), std::byte{0});
      break;
    default: {  // bytes from elsewhere
      const std::size_t from = bytes.empty() ? 0 : random.below(bytes.size());
      const std::size_t count = std::min(bytes.size() - at, bytes.size() - from);
      if (count > 0) std::memmove(bytes.data() + at, bytes.data() + from, 1 + random.below(count));
    }
  }
}

/// A letter, digit or sign for another one, so that a text keeps its form for the most part.
inline void mutate_text(std::vector<std::byte>& bytes, Random& random) {
  if (bytes.empty()) return;
  std::byte& byte = bytes[random.below(bytes.size())];
  const auto code = std::to_integer<unsigned char>(byte);
  const std::string_view kind = std::isdigit(code) != 0   ? "0123456789-e."
                                : std::isalpha(code) != 0 ? "abcdefstu_"
                                                          : "[]{}:,\"";
  byte = static_cast<std::byte>(kind[random.below(kind.size())]);
}

/// Calls `use` with `count` inputs, each one of the seeds with one to four changes.
template <typename Use>
void for_each_mutation(std::span<const std::vector<std::byte>> seeds, std::size_t count,
                       const Use& use) {
  for (std::size_t i = 0; i < count; ++i) {
    Random random(1, 0, i);
    std::vector<std::byte> bytes = seeds[random.below(seeds.size())];
    for (std::uint64_t changes = 1 + random.below(4); changes > 0; --changes) {
      if (random.below(3) == 0) {
        mutate_text(bytes, random);
      } else {
        mutate(bytes, random);
      }
    }
    use(bytes);
  }
}

}  // namespace penstock
