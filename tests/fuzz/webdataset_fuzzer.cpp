// SPDX-License-Identifier: Apache-2.0
// libFuzzer on WebDataset tars.
#include "tests/fuzz/seeds.h"
#include "tests/fuzz/webdataset_target.h"

std::vector<std::vector<std::byte>> penstock::fuzz_seeds() { return webdataset_corpus(); }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  penstock::try_webdataset(std::as_bytes(std::span(data, size)));
  return 0;
}
