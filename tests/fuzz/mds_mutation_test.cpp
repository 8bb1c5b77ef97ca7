// SPDX-License-Identifier: Apache-2.0
// The fuzzer's deterministic twin: mutations of good shards and of a good index, from fixed seeds.
#include <gtest/gtest.h>

#include "dataflow/random.h"
#include "tests/fuzz/mds_target.h"
#include "tests/fuzz/mutation.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;

Bytes mutated(Bytes bytes, std::uint64_t seed, std::uint64_t index) {
  Random random(seed, 0, index);
  for (std::uint64_t changes = 1 + random.below(3); changes > 0; --changes) mutate(bytes, random);
  return {bytes.begin(), bytes.end()};
}

TEST(MdsMutation, NothingIsReadOutsideAShard) {
  const Bytes seed = good_mds_shard();
  EXPECT_EQ(try_mds_shard(seed), 3);
  constexpr std::size_t kFiles = 100'000;
  std::size_t refused = 0, images = 0;
  for (std::size_t i = 0; i < kFiles; ++i) {
    const std::int64_t found = try_mds_shard(mutated(seed, 1, i));
    refused += found < 0 ? 1 : 0;
    images += found > 0 ? static_cast<std::size_t>(found) : 0;
  }
  EXPECT_GT(refused, kFiles / 100);
  EXPECT_GT(images, kFiles / 2);
  EXPECT_LT(images, 3 * kFiles);
}

TEST(MdsMutation, AnIndexIsReadOrRefused) {
  const Bytes seed = good_mds_index();
  EXPECT_EQ(try_mds_index(seed), 3);
  std::size_t accepted = 0;
  constexpr std::size_t kFiles = 30'000;
  for (std::size_t i = 0; i < kFiles; ++i) {
    accepted += try_mds_index(mutated(seed, 2, i)) >= 0 ? 1 : 0;
  }
  EXPECT_GT(accepted, kFiles / 1000);
  EXPECT_LT(accepted, kFiles / 2);
}

}  // namespace
}  // namespace penstock
