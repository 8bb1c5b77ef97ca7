// SPDX-License-Identifier: Apache-2.0
// LMDB files: every entry.
#include "dataflow/datasets/lmdb.h"

#include <cstdint>

#include "tests/fuzz/target.h"

namespace penstock::fuzz {

std::size_t lmdb_tree(std::span<const std::byte> input) {
  std::size_t entries = 0;
  const auto found = [&](const datasets::LmdbEntry& entry) {
    ensure(is_inside(entry.key, input) && is_inside(entry.value, input),
           "an entry outside the file");
    return ++entries < 100'000;
  };
  datasets::read_lmdb(input, found, [&](std::uint64_t offset) {
    ensure(offset <= input.size(), "damage outside the file");
  });
  return entries;
}

}  // namespace penstock::fuzz
