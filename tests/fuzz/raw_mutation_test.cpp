// SPDX-License-Identifier: Apache-2.0
// The fuzzer's deterministic twin: mutations of good inputs, from a fixed seed.
#include <gtest/gtest.h>

#include "tests/fuzz/mutation.h"
#include "tests/fuzz/raw_target.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;

TEST(RawMutation, PixelsThatFitAreTakenAndOthersRefused) {
  const std::vector<Bytes> seeds = raw_corpus();
  for (const Bytes& seed : seeds) EXPECT_TRUE(try_raw(seed));
  std::size_t accepted = 0;
  constexpr std::size_t kInputs = 20'000;
  for_each_mutation(seeds, kInputs,
                    [&](const Bytes& exact) { accepted += try_raw(exact) ? 1 : 0; });
  EXPECT_GT(accepted, kInputs / 100);
  EXPECT_LT(accepted, kInputs);
}

}  // namespace
}  // namespace penstock
