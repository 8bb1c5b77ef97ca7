// SPDX-License-Identifier: Apache-2.0
// Mutations of a good book of plans, from a fixed seed: each is read as some choices or none, and
// what is read has whole numbers where the library takes them.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/mutation.h"
#include "trainer/backends/gpu/plan_book.h"

namespace penstock::gpu {
namespace {

constexpr std::string_view kGood = R"({"device": "H200", "dnn_version": "9.19", "format": 3,
 "copy_bytes_per_us": 4.2e6,
 "plans": {"first a graph": {"engine": 12, "knobs": [[3, 1], [4, 0]], "us": 17.5,
                              "workspace_bytes": 4096},
           "timed another": {"engine": 0, "knobs": [], "us": 0.0, "workspace_bytes": 0}},
 "without_engine": {"first a third": 1048576},
 "failed_engines": {"a graph": [{"engine": 7, "knobs": [[2, 5]]}]}})";

TEST(PlanBookMutation, EveryTextIsSomeChoicesOrNone) {
  ASSERT_EQ(parse_plan_book(kGood, "H200", "9.19").choices.size(), 2U);
  const std::span<const std::byte> seed = std::as_bytes(std::span(kGood));
  std::size_t accepted = 0;
  constexpr std::size_t kTexts = 40'000;
  for (std::size_t i = 0; i < kTexts; ++i) {
    Random random(2, 0, i);
    std::vector<std::byte> bytes(seed.begin(), seed.end());
    for (std::uint64_t changes = 1 + random.below(4); changes > 0; --changes) {
      if (random.below(2) == 0) {
        mutate(bytes, random);
      } else if (!bytes.empty()) {  // what numbers are made of, in a number's place
        constexpr std::string_view kSigns = "0123456789.-e";
        std::byte& byte = bytes[random.below(bytes.size())];
        const bool digit = byte >= std::byte{'0'} && byte <= std::byte{'9'};
        if (digit) byte = static_cast<std::byte>(kSigns[random.below(kSigns.size())]);
      }
    }
    // A block of exactly this size, so that a sanitizer sees one byte too many.
    const std::vector<char> exact = [&] {
      std::vector<char> text(bytes.size());
      std::memcpy(text.data(), bytes.data(), bytes.size());
      return text;
    }();
    const auto choices = parse_plan_book({exact.data(), exact.size()}, "H200", "9.19").choices;
    EXPECT_LE(choices.size(), 2U);
    accepted += choices.size() == 2 ? 1 : 0;
  }
  // Some mutations only touch a number, a graph's text, or nothing.
  EXPECT_GT(accepted, kTexts / 100);
  EXPECT_LT(accepted, kTexts / 2);
}

}  // namespace
}  // namespace penstock::gpu
