// SPDX-License-Identifier: Apache-2.0
// libFuzzer on messages of every format.
#include "tests/fuzz/batch_message_target.h"
#include "tests/fuzz/seeds.h"

std::vector<std::vector<std::byte>> penstock::fuzz_seeds() { return batch_message_corpus(); }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  penstock::try_batch_message(std::as_bytes(std::span(data, size)));
  return 0;
}
