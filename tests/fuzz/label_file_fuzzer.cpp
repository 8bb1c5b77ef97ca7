// SPDX-License-Identifier: Apache-2.0
// libFuzzer on label files of flat folders.
#include "tests/fuzz/label_file_target.h"
#include "tests/fuzz/seeds.h"

std::vector<std::vector<std::byte>> penstock::fuzz_seeds() { return label_file_corpus(); }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  penstock::try_label_file(std::as_bytes(std::span(data, size)));
  return 0;
}
