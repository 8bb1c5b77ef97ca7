// SPDX-License-Identifier: Apache-2.0
// libFuzzer on LMDB files.
#include "tests/fuzz/lmdb_tree_target.h"
#include "tests/fuzz/seeds.h"

std::vector<std::vector<std::byte>> penstock::fuzz_seeds() { return lmdb_tree_corpus(); }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  penstock::try_lmdb(std::as_bytes(std::span(data, size)));
  return 0;
}
