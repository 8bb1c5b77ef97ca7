// SPDX-License-Identifier: Apache-2.0
// Parses whole numbers as MDS encodes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dataflow/datasets/mds.h"

namespace penstock::datasets {

/// True if the column holds whole numbers of its encoding's size: int, int8 to int64, uint8 to
/// uint64, or digits (str_int).
bool is_mds_label(const MdsColumn& column) noexcept;

/// The number in a column for which is_mds_label() is true. A fixed-size column must have its
/// encoding's size. Throws DataError if the number is not a class label.
std::int32_t parse_mds_label(std::span<const std::byte> bytes, const MdsColumn& column);

}  // namespace penstock::datasets
