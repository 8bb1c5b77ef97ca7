// SPDX-License-Identifier: Apache-2.0
// libFuzzer on checkpoints. Build with clang and -DPENSTOCK_FUZZERS=ON; run with a time or without:
//   build-fuzz/checkpoint_fuzzer -max_total_time=60
#include "tests/fuzz/checkpoint_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  penstock::try_checkpoint(std::as_bytes(std::span(data, size)));
  return 0;
}
