// SPDX-License-Identifier: Apache-2.0
// libFuzzer on zmq_op messages.
#include "tests/fuzz/seeds.h"
#include "tests/fuzz/zmq_op_target.h"

std::vector<std::vector<std::byte>> penstock::fuzz_seeds() { return zmq_op_corpus(); }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  penstock::try_zmq_op(std::as_bytes(std::span(data, size)));
  return 0;
}
