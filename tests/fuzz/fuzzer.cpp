// SPDX-License-Identifier: Apache-2.0
// The libFuzzer program of the target PENSTOCK_FUZZ_TARGET.
#include <cstdint>

#include "dataflow/datasets/shard_stream.h"
#include "tests/fuzz/target.h"

namespace penstock::fuzz {
Target PENSTOCK_FUZZ_TARGET;
}  // namespace penstock::fuzz

namespace penstock::datasets {
/// Parsers stand beside sources, which look decompressors up. No target reads compressed shards.
const Table<DecompressorEntry>& decompressor_table() {
  static constexpr Table<DecompressorEntry> kNone{"compression", {}, {}};
  return kNone;
}
}  // namespace penstock::datasets

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  penstock::fuzz::use_input(penstock::fuzz::PENSTOCK_FUZZ_TARGET,
                            std::as_bytes(std::span(data, size)));
  return 0;
}
