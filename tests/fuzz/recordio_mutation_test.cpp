// SPDX-License-Identifier: Apache-2.0
// The fuzzer's deterministic twin: mutations of good files, from a fixed seed.
#include <gtest/gtest.h>

#include "dataflow/random.h"
#include "tests/fuzz/mutation.h"
#include "tests/fuzz/recordio_target.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;

TEST(RecordioMutation, NothingIsReadOutsideTheFile) {
  const Bytes seed = good_recordio();
  EXPECT_EQ(try_recordio(seed), 4U);
  constexpr std::size_t kFiles = 100'000;
  std::size_t images = 0;
  for (std::size_t i = 0; i < kFiles; ++i) {
    Random random(1, 0, i);
    Bytes bytes = seed;
    for (std::uint64_t changes = 1 + random.below(4); changes > 0; --changes) mutate(bytes, random);
    const Bytes exact(bytes.begin(), bytes.end());
    images += try_recordio(exact);
  }
  EXPECT_GT(images, kFiles);  // damage costs some of the four
  EXPECT_LT(images, 4 * kFiles);
}

TEST(RecordioMutation, AnIndexIsReadOrRefused) {
  const auto whole = std::as_bytes(std::span(kGoodRecordioIndex));
  EXPECT_TRUE(try_recordio_index(whole));
  std::size_t accepted = 0;
  for (std::size_t i = 0; i < 20'000; ++i) {
    Random random(2, 0, i);
    Bytes bytes(whole.begin(), whole.end());
    for (std::uint64_t changes = 1 + random.below(3); changes > 0; --changes) mutate(bytes, random);
    const Bytes exact(bytes.begin(), bytes.end());
    accepted += try_recordio_index(exact) ? 1 : 0;
  }
  EXPECT_GT(accepted, 100U);
  EXPECT_LT(accepted, 19'000U);
}

}  // namespace
}  // namespace penstock
