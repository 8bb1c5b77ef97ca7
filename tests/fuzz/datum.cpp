// SPDX-License-Identifier: Apache-2.0
// Caffe's Datum messages.
#include "dataflow/datasets/lmdb.h"

#include "tests/fuzz/target.h"

namespace penstock::fuzz {

std::size_t datum(std::span<const std::byte> input) {
  ensure(is_inside(datasets::parse_datum(input).data, input), "data outside the message");
  return 1;
}

}  // namespace penstock::fuzz
