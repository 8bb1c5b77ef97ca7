// SPDX-License-Identifier: Apache-2.0
// Datapoints of tensorpack, in pickles and in MessagePack.
#include "dataflow/packed/datapoint.h"

#include "tests/fuzz/target.h"

namespace penstock::fuzz {

std::size_t datapoint(std::span<const std::byte> input) {
  const Datapoint point = parse_datapoint(input);
  read_all(point.image);
  ensure(point.shape.empty() || numpy_bytes({}, point.shape) == point.image.size(),
         "an image of another size than its shape");
  return 1;
}

}  // namespace penstock::fuzz
