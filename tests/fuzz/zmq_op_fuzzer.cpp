// SPDX-License-Identifier: Apache-2.0
// libFuzzer on zmq_op messages. Build with clang and -DPENSTOCK_FUZZERS=ON; run with a time or
// without:
//   build-fuzz/zmq_op_fuzzer -max_total_time=60
#include "tests/fuzz/zmq_op_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  penstock::try_zmq_op(std::as_bytes(std::span(data, size)));
  return 0;
}
