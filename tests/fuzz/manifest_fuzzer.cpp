// SPDX-License-Identifier: Apache-2.0
// libFuzzer on the saved lists of image folders.
#include "tests/fuzz/manifest_target.h"
#include "tests/fuzz/seeds.h"

std::vector<std::vector<std::byte>> penstock::fuzz_seeds() { return manifest_corpus(); }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  penstock::try_manifest(bytes, false);
  penstock::try_manifest(bytes, true);
  return 0;
}
