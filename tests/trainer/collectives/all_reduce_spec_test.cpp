// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/random.h"
#include "tests/support/thrown_by.h"
#include "trainer/collectives/all_reduce.h"
#include "trainer/collectives/all_reduce_spec.h"

namespace penstock {
namespace {

constexpr std::uint64_t kAnySize = std::numeric_limits<std::uint64_t>::max();

collectives::AllReduceSpec parse(std::string_view text) {
  return collectives::parse_all_reduce_spec(text, "--spec");
}

std::string error_of(std::string_view text) {
  return thrown_by<ConfigError>([&] { parse(text); });
}

TEST(AllReduceSpec, ANameAloneTakesAllSizes) {
  EXPECT_EQ(parse("xring"), (collectives::AllReduceSpec{{"ring", 1, kAnySize}}));
  EXPECT_EQ(parse("pscpu#4"), (collectives::AllReduceSpec{{"gather-add", 4, kAnySize}}));
  EXPECT_EQ(parse("pscpu/pscpu#2"),
            (collectives::AllReduceSpec{{"hierarchical-gather-add", 2, kAnySize}}));
}

TEST(AllReduceSpec, EveryNameOfTheReferenceIsAnAlgorithmOfOurs) {
  EXPECT_EQ(parse("nccl"),
            (collectives::AllReduceSpec{{std::string(collectives::kNccl), 1, kAnySize}}))
      << "no algorithm";
  for (const char* name : {"nccl/xring", "nccl/rechd", "nccl/pscpu", "xring", "pscpu", "psgpu",
                           "pscpu/pscpu", "collective"}) {
    const collectives::AllReduceSpec spec = parse(name);
    ASSERT_EQ(spec.size(), 1U) << name;
    EXPECT_EQ(find_entry(collectives::all_reduce_table(), spec[0].algorithm).name,
              spec[0].algorithm)
        << name;
  }
}

TEST(AllReduceSpec, OurOwnNamesStandForThemselves) {
  for (const collectives::AllReduceEntry* entry : collectives::all_reduce_table().entries) {
    EXPECT_EQ(parse(entry->name),
              (collectives::AllReduceSpec{{std::string(entry->name), 1, kAnySize}}));
  }
}

TEST(AllReduceSpec, LimitsPartTheSizes) {
  EXPECT_EQ(parse("pscpu:2k:pscpu#2:64k:xring"),
            (collectives::AllReduceSpec{
                {"gather-add", 1, 2048}, {"gather-add", 2, 65536}, {"ring", 1, kAnySize}}));
  EXPECT_EQ(parse("tree:7:ring"),
            (collectives::AllReduceSpec{{"tree", 1, 7}, {"ring", 1, kAnySize}}));
  EXPECT_EQ(parse("pscpu:1K:xring:1M:nccl:1G:nccl/rechd:1T:collective"),
            (collectives::AllReduceSpec{{"gather-add", 1, 1ULL << 10},
                                        {"ring", 1, 1ULL << 20},
                                        {"nccl", 1, 1ULL << 30},
                                        {"hierarchical-halving-doubling", 1, 1ULL << 40},
                                        {"ring", 1, kAnySize}}));
}

TEST(AllReduceSpec, ATensorTakesTheFirstRangeThatItFits) {
  const collectives::AllReduceEntry small{.name = "small"}, large{.name = "large"};
  const collectives::AllReducePlan plan{{&small, 1, 2048}, {&large, 1, kAnySize}};
  EXPECT_EQ(collectives::choice_for(plan, 0).algorithm, &small);
  EXPECT_EQ(collectives::choice_for(plan, 2048).algorithm, &small);
  EXPECT_EQ(collectives::choice_for(plan, 2049).algorithm, &large);
  EXPECT_EQ(collectives::choice_for(plan, kAnySize).algorithm, &large);
}

TEST(AllReduceSpec, UnknownNamesAreRefusedWithTheNearest) {
  const std::string error = error_of("pscpu:2k:xrng");
  EXPECT_TRUE(
      error.starts_with("--spec is 'pscpu:2k:xrng': there is no algorithm 'xrng'; expected "
                        "one of nccl, xring, "))
      << error;
  EXPECT_TRUE(error.ends_with("; did you mean 'xring'?")) << error;
}

TEST(AllReduceSpec, ShardsAreWholeNumbersFromOne) {
  EXPECT_EQ(error_of("xring#0"),
            "--spec is 'xring#0': 'xring#0' asks for '0' shards; expected a whole number from 1 to "
            "1024; leave out '#' for tensors in one piece");
  for (const char* text : {"xring#", "xring#-1", "xring#+2", "xring# 2", "xring#2x", "xring#1025",
                           "xring#2#2", "xring#99999999999999999999999", "xring#0x2"}) {
    EXPECT_TRUE(says(error_of(text), "expected a whole number from 1 to 1024")) << text;
  }
  EXPECT_EQ(parse("xring#1024")[0].shards, 1024);
}

TEST(AllReduceSpec, LimitsAreNumbersThatAscend) {
  EXPECT_EQ(error_of("pscpu:many:xring"),
            "--spec is 'pscpu:many:xring': the limit 'many' is no number of elements below 2^64; "
            "expected digits, then k, M, G or T for powers of 1024, such as 32k; write "
            "RANGE:LIMIT:RANGE, such as pscpu:32k:xring");
  for (const char* text :
       {"pscpu::xring", "pscpu:k:xring", "pscpu:-1:xring", "pscpu:2kk:xring", "pscpu:2m:xring",
        "pscpu:1.5k:xring", "pscpu: 2:xring", "pscpu:18446744073709551616:xring",
        "pscpu:16777216T:xring", "pscpu:xring", "pscpu:"}) {
    EXPECT_TRUE(says(error_of(text), "is no number of elements below 2^64")) << text;
  }
  for (const char* text : {"pscpu:0:xring", "pscpu:2k:nccl:2048:xring", "pscpu:2k:nccl:1k:xring"}) {
    EXPECT_TRUE(says(error_of(text), "limits of elements that ascend")) << text;
  }
  EXPECT_EQ(parse("pscpu:16777215T:xring")[0].max_elements, 16777215ULL << 40);
}

TEST(AllReduceSpec, LargeTensorsNeedAnAlgorithmToo) {
  EXPECT_EQ(error_of("pscpu:2k"),
            "--spec is 'pscpu:2k': nothing follows the limit '2k'; expected an algorithm for "
            "larger tensors; write it behind another ':'");
  for (const char* text : {"pscpu:2k:", "", "#2"}) {
    EXPECT_TRUE(says(error_of(text), "an algorithm is missing")) << text;
  }
}

TEST(AllReduceSpec, LongTextIsShownShort) {
  EXPECT_LT(error_of(std::string(100000, '\x1b')).size(), 1000U);
}

TEST(AllReduceSpec, EveryTextIsASpecOrRefused) {
  constexpr std::string_view kPieces[] = {"xring", "pscpu", "/", "#", ":", "2", "64k",
                                          "nccl",  "T",     "0", " ", "-", "x", "ring"};
  std::size_t accepted = 0;
  for (std::uint64_t i = 0; i < 5000; ++i) {
    Random random(7, 0, i);
    std::string text;
    for (std::uint64_t left = 1 + random.below(9); left > 0; --left) {
      text += kPieces[random.below(std::size(kPieces))];
    }
    try {
      const collectives::AllReduceSpec spec = parse(text);
      ++accepted;
      EXPECT_EQ(spec.back().max_elements, kAnySize) << text;
      for (std::size_t range = 1; range < spec.size(); ++range) {
        EXPECT_GT(spec[range].max_elements, spec[range - 1].max_elements) << text;
      }
    } catch (const ConfigError& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with("--spec is '")) << error.what();
    }
  }
  EXPECT_GT(accepted, 50U);
}

}  // namespace
}  // namespace penstock
