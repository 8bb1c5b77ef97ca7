// SPDX-License-Identifier: Apache-2.0
// Parses tensorpack's datapoints of an image and its label, as tensorpack's serializers write them:
// a list of two in a pickle or in MessagePack. The image is a uint8 array, or bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dataflow/values/value_tree.h"

namespace penstock::values {

struct Datapoint {
  ValueTree tree;  ///< holds the image if `image` is not a view of the input
  std::span<const std::byte> image;
  std::vector<std::int64_t> shape;  ///< of an array; one dimension, or none: an encoded image
  std::int64_t label = 0;
};

/// `bytes` must outlive the result. Throws DataError for anything else.
Datapoint parse_datapoint(std::span<const std::byte> bytes);

}  // namespace penstock::values
