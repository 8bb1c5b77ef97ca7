// SPDX-License-Identifier: Apache-2.0
// libFuzzer on .npy files.
#include "tests/fuzz/npy_target.h"
#include "tests/fuzz/seeds.h"

std::vector<std::vector<std::byte>> penstock::fuzz_seeds() { return npy_corpus(); }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  penstock::try_npy(std::as_bytes(std::span(data, size)));
  return 0;
}
