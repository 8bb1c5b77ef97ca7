// SPDX-License-Identifier: Apache-2.0
// The checkpoint fuzzer's deterministic twin: the same target over mutations of good files, from a
// fixed seed. Digits of the header are also changed for other digits, which keeps it JSON.
#include <gtest/gtest.h>

#include <string>

#include "tests/fuzz/checkpoint_target.h"
#include "tests/fuzz/mutation.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;

/// Two tensors of 6 and 2 elements, all zero.
Bytes good_file() {
  const std::vector<float> zeros(8);
  const std::span<const std::byte> data = std::as_bytes(std::span(zeros));
  const std::vector<SafeTensor> tensors = {{"logits.weight", {2, 3, 1, 1}, data.first(24)},
                                           {"logits.bias", {2}, data.last(8)}};
  const std::string header = safetensors_header({{"format", "penstock"},
                                                 {"version", "1"},
                                                 {"model", "tiny"},
                                                 {"optimizer", "sgd"},
                                                 {"height", "1"},
                                                 {"width", "1"},
                                                 {"channels", "3"},
                                                 {"classes", "2"},
                                                 {"step", "40"},
                                                 {"seed", "7"},
                                                 {"crc32", "190a55ad"}},
                                                tensors);
  Bytes bytes(header.size() + data.size());
  std::memcpy(bytes.data(), header.data(), header.size());
  return bytes;
}

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
  const Bytes seed = good_file();
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
