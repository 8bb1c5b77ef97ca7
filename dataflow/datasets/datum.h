// SPDX-License-Identifier: Apache-2.0
// Parses Caffe's Datum, a protocol buffer of one image and its label:
//   channels = 1, height = 2, width = 3 (int32), data = 4 (bytes), label = 5 (int32),
//   float_data = 6 (repeated float), encoded = 7 (bool)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock::datasets {

struct Datum {
  std::int32_t channels = 0, height = 0, width = 0;
  std::span<const std::byte> data;  ///< an encoded image, or pixels of [channels,height,width]
  std::int32_t label = 0;           ///< 0 if missing, as in any protocol buffer
  bool encoded = false;
  bool has_floats = false;  ///< the pixels are in float_data
};

/// `data` is a view of `message`. Throws DataError if `message` is not a Datum.
Datum parse_datum(std::span<const std::byte> message);

}  // namespace penstock::datasets
