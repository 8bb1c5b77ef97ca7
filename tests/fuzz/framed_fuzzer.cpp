// SPDX-License-Identifier: Apache-2.0
// libFuzzer on messages of Penstock's own format.
#include "tests/fuzz/framed_target.h"
#include "tests/fuzz/seeds.h"

std::vector<std::vector<std::byte>> penstock::fuzz_seeds() { return framed_corpus(); }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  penstock::try_framed(std::as_bytes(std::span(data, size)));
  return 0;
}
