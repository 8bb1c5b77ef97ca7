// SPDX-License-Identifier: Apache-2.0
// The fuzzer's deterministic twin.
#include <gtest/gtest.h>

#include "tests/fuzz/framed_target.h"
#include "tests/fuzz/mutation.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;

TEST(FramedMutation, NothingIsReadOutsideTheMessage) {
  const std::vector<Bytes> seeds = framed_corpus();
  for (const Bytes& seed : seeds) EXPECT_TRUE(try_framed(seed));
  std::size_t accepted = 0;
  constexpr std::size_t kMessages = 100'000;
  for_each_mutation(seeds, kMessages,
                    [&](const Bytes& exact) { accepted += try_framed(exact) ? 1 : 0; });
  // Some mutations only touch pixels, labels, times or names.
  EXPECT_GT(accepted, kMessages / 1000);
  EXPECT_LT(accepted, kMessages / 2);
}

}  // namespace
}  // namespace penstock
