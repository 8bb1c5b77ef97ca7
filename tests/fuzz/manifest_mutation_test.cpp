// SPDX-License-Identifier: Apache-2.0
// The fuzzer's deterministic twin: mutations of good manifests, from fixed seeds.
#include <gtest/gtest.h>

#include "tests/fuzz/manifest_target.h"
#include "tests/fuzz/mutation.h"

namespace penstock {
namespace {

TEST(ManifestMutation, IsReadWholeOrRefused) {
  const std::vector<std::vector<std::byte>> seeds = manifest_corpus();
  EXPECT_EQ(try_manifest(seeds[0], false), 4);
  EXPECT_EQ(try_manifest(seeds[1], true), 1);
  constexpr std::size_t kInputs = 100'000;
  std::size_t unsealed = 0, sealed = 0;
  for_each_mutation(seeds, kInputs, [&](const std::vector<std::byte>& bytes) {
    unsealed += try_manifest(bytes, false) >= 0 ? 1 : 0;
    sealed += try_manifest(bytes, true) >= 0 ? 1 : 0;
  });
  EXPECT_LT(unsealed, kInputs / 10) << "the checksum finds what is changed";
  EXPECT_GT(sealed, kInputs / 50) << "what lies behind the checksum is reached";
  EXPECT_LT(sealed, kInputs / 2);
}

}  // namespace
}  // namespace penstock
