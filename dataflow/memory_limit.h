// SPDX-License-Identifier: Apache-2.0
// How much memory this process may still take.
#pragma once

#include <cstddef>

namespace penstock {

/// The smaller of what the kernel calls available and what the control group leaves, in bytes.
/// Unknown limits count as none.
std::size_t available_memory();

}  // namespace penstock
