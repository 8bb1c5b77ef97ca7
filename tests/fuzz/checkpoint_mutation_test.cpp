// SPDX-License-Identifier: Apache-2.0
// The checkpoint fuzzer's deterministic twin: the same target over mutations of good files, from a
// fixed seed. Digits of the header are also changed for other digits, which keeps it JSON.
#include <gtest/gtest.h>

#include "tests/fuzz/checkpoint_target.h"
#include "tests/fuzz/mutation.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;

/// One digit of the text for another one.
void mutate_digit(Bytes& bytes, Random& random) {
  const std::size_t first = bytes.empty() ? 0 : random.below(bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::byte& byte = bytes[(first + i) % bytes.size()];
    if (byte < std::byte{'0'} || byte > std::byte{'9'}) continue;
    byte = static_cast<std::byte>('0' + random.below(10));
    return;
  }
}

TEST(CheckpointMutation, NothingIsReadOutsideTheFile) {
  const Bytes seed = good_checkpoint();
  ASSERT_TRUE(try_checkpoint(seed));
  std::size_t accepted = 0;
  constexpr std::size_t kFiles = 40'000;
  for (std::size_t i = 0; i < kFiles; ++i) {
    Random random(1, 0, i);
    Bytes bytes = seed;
    for (std::uint64_t changes = 1 + random.below(4); changes > 0; --changes) {
      if (random.below(2) == 0) {
        mutate(bytes, random);
      } else {
        mutate_digit(bytes, random);
      }
    }
    // A block of exactly this size, so that a sanitizer sees one byte too many.
    const Bytes exact(bytes.begin(), bytes.end());
    accepted += try_checkpoint(exact) ? 1 : 0;
  }
  // Some mutations only touch the step, the seed, or nothing.
  EXPECT_GT(accepted, kFiles / 1000);
  EXPECT_LT(accepted, kFiles / 2);
}

}  // namespace
}  // namespace penstock
