// SPDX-License-Identifier: Apache-2.0
// Counts what C++ code of a test program allocates, on all threads, by replacing operator new. C
// libraries and TBB have allocators of their own, and are not counted.
#pragma once

#include <cstdint>

namespace penstock {

/// Calls of operator new since the program began.
std::int64_t allocation_count() noexcept;

}  // namespace penstock
