// SPDX-License-Identifier: Apache-2.0
// The libFuzzer program of the target PENSTOCK_FUZZ_TARGET.
#include <cstdint>

#include "tests/fuzz/target.h"

namespace penstock::fuzz {
Target PENSTOCK_FUZZ_TARGET;
}  // namespace penstock::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  penstock::fuzz::use_input(penstock::fuzz::PENSTOCK_FUZZ_TARGET,
                            std::as_bytes(std::span(data, size)));
  return 0;
}
