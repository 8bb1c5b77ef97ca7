// SPDX-License-Identifier: Apache-2.0
// Parses MessagePack (https://github.com/msgpack/msgpack/blob/master/spec.md), with NumPy arrays
// and numbers as the Python package msgpack-numpy writes them. Text and bytes are views of the
// input. Extension types are unsupported.
#pragma once

#include <cstddef>
#include <span>

#include "dataflow/values/value_tree.h"

namespace penstock::values {

/// The value of a message, which must take up all of `bytes`. `bytes` must outlive the result.
/// MessagePack arrays become lists and maps become dicts; a map of msgpack-numpy becomes an array
/// or a number. Throws DataError with the offset for anything else. The input's length and the
/// limits bound the memory.
ValueTree parse_msgpack(std::span<const std::byte> bytes, const ValueLimits& limits = {});

}  // namespace penstock::values
