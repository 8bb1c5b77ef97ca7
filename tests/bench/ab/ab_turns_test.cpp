// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "bench/ab/turns.h"
#include "dataflow/error.h"
#include "tests/support/thrown_by.h"

namespace penstock::ab {
namespace {

using statistics::Pair;
using statistics::Verdict;
using Words = std::vector<std::string>;

TEST(AbVersions, BracesChooseTheWordsOfASide) {
  const Words words{"run", "{a.py|b/b.py}:make", "--x={1|2},{3|}", "{json}", "{a|b|c}", "{", "|}"};
  EXPECT_EQ(words_of_side(words, false),
            (Words{"run", "a.py:make", "--x=1,3", "{json}", "{a|b|c}", "{", "|}"}));
  EXPECT_EQ(words_of_side(words, true),
            (Words{"run", "b/b.py:make", "--x=2,", "{json}", "{a|b|c}", "{", "|}"}));
}

TEST(AbTurns, TheLastTotalIsTheSpeedElseTheTime) {
  const Metric automatic;
  EXPECT_EQ(speed_of("total images/sec: 100\ntotal images/sec: 412.5\n", 2, automatic)->value,
            412.5);
  EXPECT_EQ(speed_of("total images/sec: 412.5\n", 2, automatic)->unit, "img");
  EXPECT_EQ(speed_of("total tokens/sec: 1e6\n", 2, automatic)->unit, "tokens");
  EXPECT_EQ(speed_of("done\n", 2, automatic)->value, 0.5);
  EXPECT_EQ(speed_of("total images/sec: 412.5\n", 4, {.text = "time"})->value, 0.25);
}

TEST(AbTurns, AnExpressionFindsItsLastNumber) {
  const Metric rate{.text = "rate: ([0-9.]+)"};
  EXPECT_EQ(speed_of("rate: 3\nrate: 4.5 rows\n", 1, rate)->value, 4.5);
  EXPECT_FALSE(speed_of("speed: 3\n", 1, rate));
  EXPECT_FALSE(speed_of("rate: 0\n", 1, rate));
  EXPECT_FALSE(speed_of("rate: 1.2.3\n", 1, rate));
  EXPECT_EQ(speed_of("ms: 4\n", 1, {.text = "ms: (.*)", .lower_is_better = true})->value, 0.25);
  for (const char* const bad : {"(", "no group", "(a)(b)"}) {
    EXPECT_TRUE(says(thrown_by<ConfigError>([&] { speed_of("", 1, {.text = bad}); }), "--metric"));
  }
}

TurnsPlan plan_of(double margin) {
  TurnsPlan plan{.base = {}, .head = {}, .margin = margin};
  plan.base.name = "main";
  plan.head.name = "feature";
  return plan;
}

TEST(AbTurns, TheVerdictNamesTheSlowerSide) {
  const TurnsPlan plan = plan_of(0.01);
  const auto said = [&](double base, double head) {
    const std::vector<Pair> pairs{{base, head}, {base * 1.001, head}, {base, head * 1.001}};
    return verdict_of(plan, comparison_of(plan, pairs, "img"));
  };
  EXPECT_EQ(said(1, 1.05), "feature is 4.8 % slower than main (4.4 to 5.1 %): a regression.");
  EXPECT_TRUE(says(said(1.05, 1), "feature is 5.0 % faster than main"));
  EXPECT_TRUE(says(said(1, 1), "feature is as fast as main"));
  const Comparison one = comparison_of(plan, std::vector<Pair>{{1, 2}}, "img");
  EXPECT_EQ(exit_code_of(one), 7);
  EXPECT_TRUE(says(verdict_of(plan, one), "1 pairs; at least 3 are needed"));
}

/// The share of comparisons with one of the verdicts, if pairs of this noise are measured until
/// they suffice, at most 40.
double share_of(std::initializer_list<Verdict> verdicts, double noise, double slowdown) {
  constexpr int kComparisons = 400;
  constexpr std::size_t kMostPairs = 40;
  std::mt19937_64 random(1);
  std::normal_distribution<double> draw(0, noise);
  const TurnsPlan plan = plan_of(0.01);
  int found = 0;
  for (int i = 0; i < kComparisons; ++i) {
    std::vector<Pair> pairs;
    while (pairs.size() < kMostPairs && !suffice(pairs, plan.margin)) {
      pairs.push_back({std::exp(draw(random)), slowdown * std::exp(draw(random))});
    }
    const Verdict verdict = comparison_of(plan, pairs, "img").rows.front().verdict;
    found += static_cast<int>(std::ranges::count(verdicts, verdict));
  }
  return found / double{kComparisons};
}

TEST(AbTurns, EqualVersionsSeldomDiffer) {
  for (const double noise : {0.002, 0.01, 0.05}) {
    SCOPED_TRACE(noise);
    EXPECT_LE(share_of({Verdict::slower, Verdict::faster}, noise, 1), 0.05);
  }
}

TEST(AbTurns, AChangeOfThreePercentIsFoundInQuietRuns) {
  EXPECT_GE(share_of({Verdict::slower}, 0.005, 1.03), 0.95);
  EXPECT_GE(share_of({Verdict::equal}, 0.002, 1), 0.95);
}

}  // namespace
}  // namespace penstock::ab
