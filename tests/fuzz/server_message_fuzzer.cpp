// SPDX-License-Identifier: Apache-2.0
// libFuzzer on messages to parameter servers.
#include "tests/fuzz/seeds.h"
#include "tests/fuzz/server_message_target.h"

std::vector<std::vector<std::byte>> penstock::fuzz_seeds() { return server_message_corpus(); }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  penstock::try_server_message(std::as_bytes(std::span(data, size)));
  return 0;
}
