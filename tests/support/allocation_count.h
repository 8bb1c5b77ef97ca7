// SPDX-License-Identifier: Apache-2.0
// Counts the allocations of a test program's C++ code on all threads, by replacing operator new.
// Does not count C libraries and TBB, which have their own allocators.
#pragma once

#include <cstdint>

namespace penstock {

/// The number of calls of operator new since the program began.
std::int64_t allocation_count() noexcept;

}  // namespace penstock
