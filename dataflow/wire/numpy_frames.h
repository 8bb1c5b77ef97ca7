// SPDX-License-Identifier: Apache-2.0
// Arrays in a message of several frames, for producers that have no library but ZeroMQ's: a header,
// then each array's bytes in row-major order, a frame each.
//
//   frame 0      [{"dtype": "uint8", "shape": [64, 224, 224, 3]}, {"dtype": "int64", "shape":
//   [64]}] frame 1...   the bytes of one array each
//
// The header is JSON in UTF-8. A dtype is a name of NumPy's ("uint8", "float32") or its short form
// ("|u1", "<f4"). Names of an entry other than these two are left alone.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "dataflow/wire/numpy_array.h"

namespace penstock {

/// Longer headers are refused.
inline constexpr std::size_t kMaxNumpyHeader = 4096;

/// The arrays of a message: views of its frames. Throws DataError with the array, what was found
/// and what was expected. Any thread.
std::vector<NumpyArray> parse_numpy_frames(std::span<const std::span<const std::byte>> frames);

}  // namespace penstock
