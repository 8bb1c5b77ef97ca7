// SPDX-License-Identifier: Apache-2.0
// Whole numbers as MDS encodes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dataflow/packed/mds.h"

namespace penstock {

/// Whether it holds whole numbers, of the size that its encoding has: int, int8 to int64, uint8 to
/// uint64, or digits (str_int).
bool is_mds_label(const MdsColumn& column) noexcept;

/// The number in a column that is_mds_label(), of its size where it has one. Throws DataError for
/// one that numbers no class.
std::int32_t parse_mds_label(std::span<const std::byte> bytes, const MdsColumn& column);

}  // namespace penstock
