// SPDX-License-Identifier: Apache-2.0
// Serialises a list of NumPy arrays as Python does, without a copy of the arrays: these functions
// write only the bytes around the arrays' data.
//
//   pieces[0] | data of array 0 | pieces[1] | data of array 1 | pieces[2]
//
// The length of each piece depends on the types and the numbers of dimensions alone, so the
// places of the data do not move if a batch has fewer images.
//
// Stateless: any thread may call any function.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dataflow/values/numpy_array.h"

namespace penstock::values {

/// One piece before each array, and one that ends the message. `data` of the arrays is not used.
using ArrayPieces = std::vector<std::string>;

/// As `pickle.dumps([...], protocol=4)`. NumPy 1 and 2 load it without a warning.
ArrayPieces pickle_pieces(std::span<const NumpyArray> arrays);

/// As `msgpack.packb([...], default=msgpack_numpy.encode)`. The data of each array must be smaller
/// than 4 GiB.
ArrayPieces msgpack_pieces(std::span<const NumpyArray> arrays);

// ---- one array inside another value -----------------------------------------

/// Appends what a pickle has before the data of an array, in C's order. For objects the data are
/// their list. kPickledArrayEnd follows the data.
void append_pickled_array(std::string& to, const NumpyArray& array);
inline constexpr std::string_view kPickledArrayEnd = "tb";

/// Appends what MessagePack has before the data of an array, in C's order. Nothing follows the
/// data.
void append_msgpack_array(std::string& to, const NumpyArray& array);

/// Appends the lowest bytes of `value`, as many as `width`.
void append_little(std::string& to, std::uint64_t value, int width);
void append_big(std::string& to, std::uint64_t value, int width);

}  // namespace penstock::values
