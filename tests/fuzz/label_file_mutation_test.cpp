// SPDX-License-Identifier: Apache-2.0
// The fuzzer's deterministic twin: mutations of good inputs, from a fixed seed.
#include <gtest/gtest.h>

#include "tests/fuzz/label_file_target.h"
#include "tests/fuzz/mutation.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;

TEST(LabelFileMutation, EveryTextLabelsTheImagesOrIsRefused) {
  const std::vector<Bytes> seeds = label_file_corpus();
  for (const Bytes& seed : seeds) EXPECT_TRUE(try_label_file(seed));
  std::size_t accepted = 0;
  constexpr std::size_t kInputs = 20'000;
  for_each_mutation(seeds, kInputs,
                    [&](const Bytes& exact) { accepted += try_label_file(exact) ? 1 : 0; });
  EXPECT_GT(accepted, kInputs / 100);
  EXPECT_LT(accepted, kInputs);
}

}  // namespace
}  // namespace penstock
