// SPDX-License-Identifier: Apache-2.0
// The fuzzer's deterministic twin: mutations of good files, from a fixed seed.
#include <gtest/gtest.h>

#include "tests/fuzz/mutation.h"
#include "tests/fuzz/npy_target.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;

TEST(NpyMutation, NothingIsReadOutsideTheFile) {
  const std::vector<Bytes> seeds = npy_corpus();
  for (const Bytes& seed : seeds) EXPECT_TRUE(try_npy(seed));
  std::size_t accepted = 0;
  constexpr std::size_t kFiles = 200'000;
  for_each_mutation(seeds, kFiles, [&](const Bytes& exact) { accepted += try_npy(exact) ? 1 : 0; });
  EXPECT_GT(accepted, kFiles / 1000);
  EXPECT_LT(accepted, kFiles / 2);
}

}  // namespace
}  // namespace penstock
