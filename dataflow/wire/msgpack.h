// SPDX-License-Identifier: Apache-2.0
// MessagePack (https://github.com/msgpack/msgpack/blob/master/spec.md), with arrays and numbers of
// NumPy as the Python package msgpack-numpy writes them. Text and bytes are views of the input.
// Extension types are refused.
#pragma once

#include <cstddef>
#include <span>

#include "dataflow/wire/value_tree.h"

namespace penstock {

/// The value of a message, which takes up all of `bytes`; these must outlive it. Arrays of the
/// format are lists, maps are dicts, and a map of msgpack-numpy is an array or a number. Throws
/// DataError, with the offset, for anything else. Memory is bounded by the input's length and by
/// the limits.
ValueTree parse_msgpack(std::span<const std::byte> bytes, const ValueLimits& limits = {});

}  // namespace penstock
