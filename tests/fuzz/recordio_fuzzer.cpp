// SPDX-License-Identifier: Apache-2.0
// libFuzzer on RecordIO files and their indices.
#include "tests/fuzz/recordio_target.h"
#include "tests/fuzz/seeds.h"

std::vector<std::vector<std::byte>> penstock::fuzz_seeds() { return recordio_corpus(); }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  penstock::try_recordio(bytes);
  penstock::try_recordio_index(bytes);
  return 0;
}
