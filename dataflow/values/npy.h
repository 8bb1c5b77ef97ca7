// SPDX-License-Identifier: Apache-2.0
// Parses the header of NumPy's .npy files, versions 1 to 3. It maps bytes to a view.
#pragma once

#include <cstddef>
#include <span>

#include "dataflow/values/numpy_array.h"

namespace penstock::values {

/// The array of a file. Its data are all that the file has; in a truncated file that is less than
/// type and shape need. Throws DataError if the file is not a .npy file of plain numbers.
NumpyArray parse_npy(std::span<const std::byte> file);

}  // namespace penstock::values
