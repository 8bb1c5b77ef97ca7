// SPDX-License-Identifier: Apache-2.0
// The fuzzer's deterministic twin: the same target over mutations of good Examples, from a fixed
// seed. Sees little by itself; under address sanitizer it sees every stray read.
#include <gtest/gtest.h>

#include <vector>

#include "tests/fuzz/mutation.h"
#include "tests/fuzz/tfrecord_target.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;

TEST(TfRecordMutation, NothingIsReadOutsideTheRecord) {
  const std::vector<Bytes> seeds = tfrecord_corpus();
  EXPECT_TRUE(try_example(seeds[0]));
  EXPECT_TRUE(try_example(seeds[1]));
  EXPECT_EQ(tfrecord_data(seeds[2], false).size(), seeds[0].size());
  std::size_t accepted = 0;
  constexpr std::size_t kRecords = 200'000;
  for_each_mutation(seeds, kRecords, [&](const Bytes& exact) {
    try_tfrecord(exact);
    accepted += try_example(exact) ? 1 : 0;
  });
  EXPECT_GT(accepted, kRecords / 1000);
  EXPECT_LT(accepted, kRecords / 2);
}

}  // namespace
}  // namespace penstock
