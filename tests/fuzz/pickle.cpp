// SPDX-License-Identifier: Apache-2.0
// Pickles: parse one and follow every value to its parts.
#include "dataflow/values/value_tree.h"

#include <cstdint>

#include "tests/fuzz/target.h"

namespace penstock::fuzz {
namespace {

void walk(const values::ValueTree& tree, const values::Value& value, std::int32_t depth,
          std::size_t& steps) {
  ensure(depth <= values::ValueLimits{}.depth, "values nested deeper than the limit");
  if (++steps > 100'000) return;  // shared values are met again and again
  read_all(value.bytes);
  read_all(value.array.data);
  const bool is_objects = value.array.type.kind == values::kNumpyObject;
  ensure(!is_objects || (value.items.size() == 1 && values::numpy_bytes({}, value.array.shape) ==
                                                        tree.at(value.items[0]).items.size()),
         "an array of another number of objects than its shape");
  ensure(is_objects || value.kind != values::ValueKind::array ||
             values::numpy_bytes(value.array.type, value.array.shape) == value.array.data.size(),
         "an array of another size than its shape");
  for (const values::ValueId id : value.items) {
    ensure(id < tree.size(), "a value that does not exist");
    walk(tree, tree.at(id), depth + 1, steps);
  }
}

}  // namespace

std::size_t pickle(std::span<const std::byte> input) {
  const values::ValueTree tree = values::parse_pickle(input);
  std::size_t steps = 0;
  walk(tree, tree.root(), 1, steps);
  return steps;
}

}  // namespace penstock::fuzz
