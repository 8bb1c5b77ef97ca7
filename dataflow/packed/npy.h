// SPDX-License-Identifier: Apache-2.0
// The header of NumPy's .npy files, versions 1 to 3. Bytes in, a view out.
#pragma once

#include <cstddef>
#include <span>

#include "dataflow/wire/numpy_array.h"

namespace penstock {

/// The array of a file: its data are what the file has of it, which is less than type and shape say
/// where the file was cut. Throws DataError for what is no .npy file of plain numbers.
NumpyArray parse_npy(std::span<const std::byte> file);

}  // namespace penstock
