// SPDX-License-Identifier: Apache-2.0
// Invariants that are checked in every build.
#pragma once

#include <stdexcept>
#include <string>

/// Checks an invariant, in every build. Not for hot loops, and not for user mistakes.
#define PENSTOCK_ASSERT(condition)                                                  \
  do {                                                                              \
    if (!(condition))                                                               \
      ::penstock::assertion_failed(#condition, __builtin_FILE(), __builtin_LINE()); \
  } while (false)

namespace penstock {
[[noreturn]] inline void assertion_failed(const char* condition, const char* file, int line) {
  throw std::logic_error(std::string("broken invariant: ") + condition + " at " + file + ":" +
                         std::to_string(line) + "; please report this");
}
}  // namespace penstock
