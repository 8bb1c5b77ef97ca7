// SPDX-License-Identifier: Apache-2.0
// The fuzzer's deterministic twin.
#include <gtest/gtest.h>

#include "tests/fuzz/batch_message_target.h"
#include "tests/fuzz/mutation.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;

TEST(BatchMessageMutation, NothingIsReadOutsideTheMessage) {
  const std::vector<Bytes> seeds = batch_message_corpus();
  ASSERT_EQ(seeds.size(), 4U);
  EXPECT_TRUE(try_batch_message(seeds[0]));
  EXPECT_TRUE(try_batch_message(seeds[1]));
  EXPECT_FALSE(try_batch_message(seeds[2]));  // of another shape
  EXPECT_TRUE(try_batch_message(seeds[3]));
  std::size_t accepted = 0;
  constexpr std::size_t kMessages = 50'000;
  for_each_mutation(seeds, kMessages,
                    [&](const Bytes& exact) { accepted += try_batch_message(exact) ? 1 : 0; });
  // Some mutations only touch pixels or labels.
  EXPECT_GT(accepted, kMessages / 1000);
  EXPECT_LT(accepted, kMessages / 2);
}

}  // namespace
}  // namespace penstock
