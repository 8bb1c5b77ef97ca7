// SPDX-License-Identifier: Apache-2.0
// The fuzzer's deterministic twin: mutations of good inputs, from a fixed seed.
#include <gtest/gtest.h>

#include "tests/fuzz/decompressor_target.h"
#include "tests/fuzz/mutation.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;

TEST(DecompressorMutation, DamagedInputIsNoticedOrHarmless) {
  const std::vector<Bytes> seeds = decompressor_corpus();
  const Bytes text = decompressor_text();
  for (const Bytes& seed : seeds) EXPECT_EQ(try_decompressor(seed), text);
  std::size_t accepted = 0, other = 0;
  constexpr std::size_t kInputs = 20'000;
  for_each_mutation(seeds, kInputs, [&](const Bytes& exact) {
    const auto whole = try_decompressor(exact);
    accepted += whole ? 1 : 0;
    other += whole && !whole->empty() && *whole != text ? 1 : 0;
  });
  EXPECT_GT(accepted, kInputs / 1000);
  EXPECT_LT(accepted, kInputs / 2);
  // All but Zstandard's frames, which the library writes without a checksum, have one.
  EXPECT_LT(other, kInputs / 10);
}

}  // namespace
}  // namespace penstock
