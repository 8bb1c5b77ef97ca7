// SPDX-License-Identifier: Apache-2.0
// libFuzzer on datapoints of tensorpack, in pickles and in MessagePack.
#include "tests/fuzz/datapoint_target.h"
#include "tests/fuzz/seeds.h"

std::vector<std::vector<std::byte>> penstock::fuzz_seeds() { return datapoint_corpus(); }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  penstock::try_datapoint(std::as_bytes(std::span(data, size)));
  return 0;
}
