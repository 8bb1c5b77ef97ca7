// SPDX-License-Identifier: Apache-2.0
// Python's pickles, as far as they hold plain values and NumPy arrays: protocols 2 to 5, of Python
// 2 and 3. Nothing of a pickle is executed: the few functions that NumPy's own pickles call are
// known by name, and every other name is refused. Bytes are views of the input, except where
// protocol 2 of Python 3 has them as text.
//
// Values: None, bool, int up to 64 bits, float, str, bytes, bytearray, list, tuple, dict, ndarray
// and NumPy's scalars of plain numbers.
#pragma once

#include <cstddef>
#include <span>

#include "dataflow/wire/value_tree.h"

namespace penstock {

/// Whether the bytes begin as a pickle of protocol 2 or later does.
bool is_pickle(std::span<const std::byte> bytes) noexcept;

/// The value of a pickle, which takes up all of `bytes`; these must outlive it. Throws DataError,
/// which names the opcode and its offset, for anything else. Memory is bounded by the input's
/// length and by the limits.
ValueTree parse_pickle(std::span<const std::byte> bytes, const ValueLimits& limits = {});

}  // namespace penstock
