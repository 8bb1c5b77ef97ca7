// SPDX-License-Identifier: Apache-2.0
// The fuzzer's deterministic twin: the same target over mutations of good files, from a fixed seed,
// every chain as often as every other. Sees little by itself; under address sanitizer it sees every
// stray read.
#include <gtest/gtest.h>

#include "dataflow/random.h"
#include "tests/fuzz/jpeg_target.h"
#include "tests/fuzz/mutation.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;

TEST(JpegMutation, HostileFilesEndInPixelsOrAnError) {
  const std::vector<Bytes> seeds = jpeg_corpus();
  JpegChains chains;
  for (std::size_t chain = 0; chain < chains.size(); ++chain) {
    for (std::size_t i = 0; i < seeds.size(); ++i) {
      ASSERT_TRUE(chains.try_one(chain, seeds[i], chain + i)) << chain << ", file " << i;
    }
  }
  std::size_t decoded = 0;
  const std::size_t files = 40 * chains.size();
  for (std::size_t i = 0; i < files; ++i) {
    Random random(1, 0, i);
    Bytes bytes = seeds[random.below(seeds.size())];
    // Every other time within the headers, where sizes, samplings and tables are.
    Bytes head(bytes.begin(), bytes.begin() + 200);
    if (i % 2 == 0) head.swap(bytes);
    for (std::uint64_t changes = 1 + random.below(3); changes > 0; --changes) mutate(bytes, random);
    if (i % 2 == 0) bytes.insert(bytes.end(), head.begin() + 200, head.end());
    // A block of exactly this size, so that a sanitizer sees one byte too many.
    const Bytes exact(bytes.begin(), bytes.end());
    decoded += chains.try_one(i, exact, random.below(1000)) ? 1 : 0;
  }
  EXPECT_GT(decoded, files / 20);
  EXPECT_LT(decoded, files * 19 / 20);
}

}  // namespace
}  // namespace penstock
