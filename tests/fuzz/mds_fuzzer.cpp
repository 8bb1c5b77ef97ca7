// SPDX-License-Identifier: Apache-2.0
// libFuzzer on MDS shards and their index.json.
#include "tests/fuzz/mds_target.h"
#include "tests/fuzz/seeds.h"

std::vector<std::vector<std::byte>> penstock::fuzz_seeds() {
  return {good_mds_shard(), good_mds_index()};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  penstock::try_mds_index(bytes);
  penstock::try_mds_shard(bytes);
  return 0;
}
