// SPDX-License-Identifier: Apache-2.0
// Reads NumPy arrays from a message of several frames, for producers that have no library except
// ZeroMQ: a header, then the bytes of each array in row-major order, one frame per array.
//
//   frame 0   [{"dtype": "uint8", "shape": [N, 224, 224, 3]}, {"dtype": "int64", "shape": [N]}]
//   frame 1   the bytes of the first array; and so on
//
// The header is JSON in UTF-8. A dtype is a NumPy name ("uint8", "float32") or its short form
// ("|u1", "<f4"). Other names in an entry are ignored.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "dataflow/values/numpy_array.h"

namespace penstock::remote {

/// Longest accepted header, in bytes.
inline constexpr std::size_t kMaxNumpyHeader = 4096;

/// Returns the arrays of a message as views of its frames. Throws DataError, which names the array,
/// what was found and what was expected. Any thread.
std::vector<values::NumpyArray> parse_numpy_frames(
    std::span<const std::span<const std::byte>> frames);

}  // namespace penstock::remote
