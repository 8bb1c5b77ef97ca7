// SPDX-License-Identifier: Apache-2.0
// Parses Python pickles of plain values and NumPy arrays: protocols 2 to 5, of Python 2 and 3. It
// executes nothing: it knows the names of the few functions that NumPy's own pickles call, and
// refuses every other name. Bytes are views of the input, except if protocol 2 of Python 3 stores
// them as text.
//
// Supported values: None, bool, int up to 64 bits, float, str, bytes, bytearray, list, tuple, dict,
// ndarray and NumPy's scalars of plain numbers.
#pragma once

#include <cstddef>
#include <span>

#include "dataflow/values/value_tree.h"

namespace penstock::values {

/// True if the bytes begin like a pickle of protocol 2 or later.
bool is_pickle(std::span<const std::byte> bytes) noexcept;

/// The value of a pickle, which must take up all of `bytes`. `bytes` must outlive the result.
/// Throws DataError that names the opcode and its offset for anything else. The input's length and
/// the limits bound the memory.
ValueTree parse_pickle(std::span<const std::byte> bytes, const ValueLimits& limits = {});

}  // namespace penstock::values
