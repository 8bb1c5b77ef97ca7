// SPDX-License-Identifier: Apache-2.0
// The fuzzer's deterministic twin: the same target over mutations of good archives, from a fixed
// seed. Sees little by itself; under address sanitizer it sees every stray read.
#include <gtest/gtest.h>

#include <vector>

#include "tests/fuzz/mutation.h"
#include "tests/fuzz/webdataset_target.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;

TEST(WebDatasetMutation, NothingIsReadOutsideTheArchive) {
  const std::vector<Bytes> seeds = webdataset_corpus();
  EXPECT_GT(try_webdataset(seeds[0]), 0);
  EXPECT_GT(try_webdataset(seeds[1]), 0);
  std::size_t whole = 0;
  constexpr std::size_t kArchives = 30'000;
  for_each_mutation(seeds, kArchives,
                    [&](const Bytes& exact) { whole += try_webdataset(exact) > 0 ? 1 : 0; });
  EXPECT_GT(whole, kArchives / 100);
  EXPECT_LT(whole, kArchives);
}

}  // namespace
}  // namespace penstock
