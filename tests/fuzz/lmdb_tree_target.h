// SPDX-License-Identifier: Apache-2.0
// What the fuzzer and its deterministic twin do with the bytes of an LMDB file.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/packed/lmdb_tree.h"
#include "tests/support/lmdb_file.h"

namespace penstock {

/// Whether they were one. Throws std::logic_error where an answer contradicts itself.
inline bool try_lmdb(std::span<const std::byte> bytes) {
  try {
    std::size_t entries = 0;
    const auto is_inside = [&](std::span<const std::byte> part) {
      return part.data() >= bytes.data() &&
             part.data() + part.size() <= bytes.data() + bytes.size();
    };
    const auto found = [&](const LmdbEntry& entry) {
      if (!is_inside(entry.key) || !is_inside(entry.value)) {
        throw std::logic_error("an entry outside the file");
      }
      return ++entries < 100'000;
    };
    read_lmdb(bytes, found, [&](std::uint64_t offset) {
      if (offset > bytes.size()) throw std::logic_error("damage outside the file");
    });
    return entries > 0;
  } catch (const DataError&) {
    return false;
  }
}

/// Values within pages and of pages of their own.
inline std::vector<std::vector<std::byte>> lmdb_tree_corpus() {
  using Bytes = std::vector<std::byte>;
  return {lmdb_file({{"a", Bytes(5)}, {"b", Bytes(300)}, {"c", Bytes(40)}}, 256),
          lmdb_file({{"a", Bytes(5)}, {"b", Bytes(90)}}, 512)};
}

}  // namespace penstock
