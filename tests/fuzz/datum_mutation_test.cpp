// SPDX-License-Identifier: Apache-2.0
// The fuzzer's deterministic twin: mutations of good inputs, from a fixed seed.
#include <gtest/gtest.h>

#include "tests/fuzz/datum_target.h"
#include "tests/fuzz/mutation.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;

TEST(DatumMutation, NothingIsReadOutsideTheInput) {
  const std::vector<Bytes> seeds = datum_corpus();
  for (const Bytes& seed : seeds) EXPECT_TRUE(try_datum(seed));
  std::size_t accepted = 0;
  constexpr std::size_t kInputs = 100'000;
  for_each_mutation(seeds, kInputs,
                    [&](const Bytes& exact) { accepted += try_datum(exact) ? 1 : 0; });
  EXPECT_GT(accepted, kInputs / 1000);
  EXPECT_LT(accepted, kInputs);
}

}  // namespace
}  // namespace penstock
