// SPDX-License-Identifier: Apache-2.0
// Caffe's Datum, a protocol buffer of one image and its label:
//   channels = 1, height = 2, width = 3 (int32), data = 4 (bytes), label = 5 (int32),
//   float_data = 6 (repeated float), encoded = 7 (bool)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock {

struct Datum {
  std::int32_t channels = 0, height = 0, width = 0;
  std::span<const std::byte> data;  ///< an encoded image, or pixels of [channels,height,width]
  std::int32_t label = 0;           ///< where there is none, 0, as in any protocol buffer
  bool encoded = false;
  bool has_floats = false;  ///< pixels in float_data instead
};

/// `data` is a view of `message`. Throws DataError, with the offset, for what is no such message.
Datum parse_datum(std::span<const std::byte> message);

}  // namespace penstock
