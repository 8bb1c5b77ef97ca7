// SPDX-License-Identifier: Apache-2.0
// libFuzzer on TFRecords.
#include "tests/fuzz/seeds.h"
#include "tests/fuzz/tfrecord_target.h"

std::vector<std::vector<std::byte>> penstock::fuzz_seeds() { return tfrecord_corpus(); }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  penstock::try_tfrecord(std::as_bytes(std::span(data, size)));
  return 0;
}
