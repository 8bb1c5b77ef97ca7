// SPDX-License-Identifier: Apache-2.0
#include "trainer/backend.h"

namespace penstock {

std::string_view to_string(Precision precision) {
  constexpr std::string_view kNames[] = {"fp32", "tf32", "fp16", "bf16"};
  return kNames[static_cast<std::size_t>(precision)];
}

}  // namespace penstock
