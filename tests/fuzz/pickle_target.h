// SPDX-License-Identifier: Apache-2.0
// What the fuzzer and its deterministic twin do with the bytes of a pickle: parse them, and walk
// through all that they say. Throws std::logic_error where an answer contradicts itself.
#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/wire/pickle.h"
#include "tests/support/pickles.h"

namespace penstock {

/// Follows every value to its parts.
inline void walk(const ValueTree& tree, const Value& value, std::int32_t depth,
                 std::size_t& steps) {
  if (depth > ValueLimits{}.depth) throw std::logic_error("values nested deeper than the limit");
  if (++steps > 100'000) return;  // shared values are met again and again
  unsigned sum = 0;
  for (const std::byte byte : value.bytes) sum += std::to_integer<unsigned>(byte);
  for (const std::byte byte : value.array.data) sum += std::to_integer<unsigned>(byte);
  if (sum == 0xffffffffU) throw std::logic_error("more bytes than there are");
  if (value.kind == ValueKind::array &&
      numpy_bytes(value.array.type, value.array.shape) != value.array.data.size()) {
    throw std::logic_error("an array of another size than its shape");
  }
  for (const ValueId id : value.items) {
    if (id >= tree.size()) throw std::logic_error("a value that does not exist");
    walk(tree, tree.at(id), depth + 1, steps);
  }
}

/// Whether they were a pickle.
inline bool try_pickle(std::span<const std::byte> bytes) {
  try {
    const ValueTree tree = parse_pickle(bytes);
    std::size_t steps = 0;
    walk(tree, tree.root(), 1, steps);
    return true;
  } catch (const DataError&) {
    return false;
  }
}

inline std::vector<std::vector<std::byte>> pickle_corpus() {
  return {pickle_of_arrays(), pickle_of_python2()};
}

}  // namespace penstock
