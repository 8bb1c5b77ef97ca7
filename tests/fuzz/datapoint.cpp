// SPDX-License-Identifier: Apache-2.0
// Datapoints of tensorpack, in pickles and in MessagePack.
#include "dataflow/values/value_tree.h"

#include "tests/fuzz/target.h"

namespace penstock::fuzz {

std::size_t datapoint(std::span<const std::byte> input) {
  const values::Datapoint point = values::parse_datapoint(input);
  read_all(point.image);
  ensure(point.shape.empty() || values::numpy_bytes({}, point.shape) == point.image.size(),
         "an image of another size than its shape");
  return 1;
}

}  // namespace penstock::fuzz
