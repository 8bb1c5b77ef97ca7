// SPDX-License-Identifier: Apache-2.0
// libFuzzer on pixels for the decoder raw.
#include "tests/fuzz/raw_target.h"
#include "tests/fuzz/seeds.h"

std::vector<std::vector<std::byte>> penstock::fuzz_seeds() { return raw_corpus(); }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  penstock::try_raw(std::as_bytes(std::span(data, size)));
  return 0;
}
