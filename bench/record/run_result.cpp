// SPDX-License-Identifier: Apache-2.0
#include "bench/record/run_result.h"

namespace penstock {

std::string_view to_string(Status status) {
  constexpr std::string_view kNames[] = {"ok", "skipped", "failed", "partial", "draining"};
  return kNames[static_cast<std::size_t>(status)];
}

}  // namespace penstock
