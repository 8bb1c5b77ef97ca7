// SPDX-License-Identifier: Apache-2.0
// The fuzzer's deterministic twin: mutations of good pickles, from a fixed seed.
#include <gtest/gtest.h>

#include "tests/fuzz/mutation.h"
#include "tests/fuzz/pickle_target.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;

TEST(PickleMutation, NothingIsReadOutsideThePickle) {
  const std::vector<Bytes> seeds = pickle_corpus();
  for (const Bytes& seed : seeds) EXPECT_TRUE(try_pickle(seed));
  std::size_t accepted = 0;
  constexpr std::size_t kPickles = 200'000;
  for_each_mutation(seeds, kPickles,
                    [&](const Bytes& exact) { accepted += try_pickle(exact) ? 1 : 0; });
  EXPECT_GT(accepted, kPickles / 1000);
  EXPECT_LT(accepted, kPickles / 2);
}

}  // namespace
}  // namespace penstock
