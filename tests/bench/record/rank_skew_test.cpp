// SPDX-License-Identifier: Apache-2.0
// Whose input makes the other ranks wait, on simulated trainings with and without a known delay.
#include "bench/record/rank_skew.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <sstream>

#include "bench/record/step_parts.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

constexpr double kComputeMs = 10;
constexpr std::size_t kSteps = 200, kAhead = 2;

struct Training {
  std::size_t ranks = 4, per_host = 2;
  double work_ms = 6, spread = 0.2;  ///< of a batch: mean, and standard deviation over mean
  /// Added to the work for a batch of a rank.
  std::function<double(std::size_t rank, std::size_t step)> delay_ms =
      [](std::size_t, std::size_t) { return 0.0; };
};

struct Trained {
  std::vector<RankWaits> waits;
  double step_ms = 0;  ///< mean
};

/// Each rank makes batches at most kAhead ahead; a step begins when each rank has a batch.
Trained train(const Training& training, unsigned seed) {
  std::mt19937 random(seed);
  const double variance = std::log(1 + training.spread * training.spread);
  std::lognormal_distribution<double> work(std::log(training.work_ms) - variance / 2,
                                           std::sqrt(variance));
  Trained result;
  for (std::size_t rank = 0; rank < training.ranks; ++rank) {
    result.waits.push_back(
        {static_cast<std::int32_t>(rank), "node" + std::to_string(rank / training.per_host), {}});
  }
  std::vector<double> ready(training.ranks), begins;
  double end = 0;
  for (std::size_t step = 0; step < kSteps; ++step) {
    const double free = step < kAhead ? 0 : begins[step - kAhead];
    for (std::size_t rank = 0; rank < training.ranks; ++rank) {
      ready[rank] = std::max(ready[rank], free) + work(random) + training.delay_ms(rank, step);
      result.waits[rank].waits_ms.push_back(std::max(0.0, ready[rank] - end));
    }
    begins.push_back(std::max(end, *std::ranges::max_element(ready)));
    end = begins.back() + kComputeMs;
  }
  result.step_ms = end / kSteps;
  return result;
}

RankSkew skew_of(const Training& training, unsigned seed) {
  const Trained trained = train(training, seed);
  return find_skew(trained.waits, trained.step_ms);
}

/// How much longer a step is with the delay than without it.
double true_delay_ms(Training training, unsigned seed) {
  const double with = train(training, seed).step_ms;
  training.delay_ms = [](std::size_t, std::size_t) { return 0.0; };
  return with - train(training, seed).step_ms;
}

TEST(RankSkew, NamesNobodyInAHundredTrainingsWithoutDelay) {
  for (const std::size_t ranks : {2, 3, 8}) {
    int named = 0;
    for (unsigned seed = 0; seed < 100; ++seed) {
      const RankSkew skew = skew_of({.ranks = ranks}, seed);
      named += skew.culprit != Culprit::none;
      EXPECT_LE(skew.delay_percent, 2) << ranks << " ranks, seed " << seed;
    }
    EXPECT_LE(named, 5) << ranks << " ranks";
  }
}

TEST(RankSkew, NamesNoRankOrHostIfAllWaitForUnevenBatches) {
  for (const double work_ms : {9.0, 10.0, 14.0}) {
    int named = 0;
    for (unsigned seed = 0; seed < 100; ++seed) {
      const Culprit culprit = skew_of({.work_ms = work_ms, .spread = 0.4}, seed).culprit;
      named += culprit == Culprit::rank || culprit == Culprit::host;
    }
    EXPECT_LE(named, 5) << work_ms;
  }
}

TEST(RankSkew, FindsARankThatIsAlwaysLateAndTheSizeOfItsDelay) {
  for (const double delay_ms : {6.0, 12.0, 40.0}) {
    for (unsigned seed = 0; seed < 20; ++seed) {
      Training training;
      training.delay_ms = [=](std::size_t rank, std::size_t) { return rank == 2 ? delay_ms : 0; };
      const RankSkew skew = skew_of(training, seed);
      ASSERT_EQ(skew.culprit, Culprit::rank) << delay_ms;
      EXPECT_EQ(skew.rank, 2);
      EXPECT_EQ(skew.host, "node1");
      EXPECT_NEAR(skew.delay_ms, true_delay_ms(training, seed), 0.1 * skew.delay_ms) << delay_ms;
      EXPECT_GT(skew.culprit_percent, 90);
      EXPECT_GT(skew.decided_percent, 80);
    }
  }
}

TEST(RankSkew, FindsARankThatIsLateInSomeSteps) {
  Training training;
  training.delay_ms = [](std::size_t rank, std::size_t step) {
    return rank == 1 && step % 10 == 3 ? 60 : 0;
  };
  const RankSkew skew = skew_of(training, 1);
  EXPECT_EQ(skew.culprit, Culprit::rank);
  EXPECT_EQ(skew.rank, 1);
  EXPECT_NEAR(skew.delay_ms, true_delay_ms(training, 1), 0.1 * skew.delay_ms);
}

TEST(RankSkew, FindsAHostWhoseRanksAreLateTogether) {
  Training training{.ranks = 6};
  training.delay_ms = [](std::size_t rank, std::size_t) { return rank / 2 == 1 ? 14 : 0; };
  const RankSkew skew = skew_of(training, 3);
  ASSERT_EQ(skew.culprit, Culprit::host);
  EXPECT_EQ(skew.host, "node1");
  EXPECT_EQ(skew.rank, -1);
  EXPECT_NEAR(skew.delay_ms, true_delay_ms(training, 3), 0.1 * skew.delay_ms);
  EXPECT_TRUE(says(sentence_of(skew), "The ranks on node1 make the others wait"));
}

TEST(RankSkew, SaysThatTheLastRankChanges) {
  Training training{.ranks = 4};
  training.delay_ms = [](std::size_t rank, std::size_t step) {
    return (step * 7 / 3) % 4 == rank ? 25 : 0;
  };
  const RankSkew skew = skew_of(training, 5);
  EXPECT_EQ(skew.culprit, Culprit::moving);
  EXPECT_EQ(skew.rank, -1);
  EXPECT_TRUE(says(sentence_of(skew), "changes from step to step"));
}

TEST(RankSkew, AStallOfAnotherRankHidesNobody) {
  Training training{.ranks = 3, .work_ms = 2};
  training.delay_ms = [](std::size_t rank, std::size_t step) {
    return rank == 1 ? 12.0 : step == 70 ? 900.0 : 0.0;
  };
  const RankSkew skew = skew_of(training, 7);
  EXPECT_EQ(skew.culprit, Culprit::rank);
  EXPECT_EQ(skew.rank, 1);
  EXPECT_NEAR(skew.delay_ms, 4, 0.4) << "without the stall, a step takes 14 ms in place of 10 ms";
}

TEST(RankSkew, ABurstDecidesNothing) {
  Training training;
  training.delay_ms = [](std::size_t rank, std::size_t step) {
    return rank == 0 && step > 90 && step < 100 ? 30 : 0;
  };
  EXPECT_EQ(skew_of(training, 7).culprit, Culprit::undecided);
}

/// The record of one rank, whose steps of 10 ms wait for `wait_ms`.
RunResult record_of(std::int32_t rank, double wait_ms) {
  RunResult record;
  record.step_ms.assign(40, 10);
  record.starved_ms.assign(40, wait_ms);
  record.copy_exposed_ms.assign(40, 0.5);
  record.ranks = {{.rank = rank, .host = "node" + std::to_string(rank), .img_per_s = 800}};
  record.ranks.front().exposed_wait = percentiles_of("exposed_wait", record.starved_ms);
  record.ranks.front().batch_ready = percentiles_of("batch_ready", record.starved_ms);
  return record;
}

TEST(JoinedRanks, AreOneTableWithTheSkewBetweenTheirSteps) {
  const std::vector<RunResult> records{record_of(1, 0), record_of(2, 4), record_of(3, 0.2)};
  const JoinedRanks joined = join_ranks(records);
  ASSERT_EQ(joined.ranks.size(), 3U);
  ASSERT_TRUE(joined.skew);
  EXPECT_EQ(joined.skew->rank, 2);
  EXPECT_NEAR(joined.skew->delay_ms, 3.8, 1e-9);
  EXPECT_EQ(joined.ranks[1].last_percent, 100);
  std::ostringstream text;
  document::write_text({ranks_section(records)}, text);
  EXPECT_TRUE(says(text.str(), "node3"));
  EXPECT_TRUE(says(text.str(), "In 100 % of the steps ranks waited for another's batch"));
  EXPECT_TRUE(says(text.str(), "4.00 ms (p50)"));
  EXPECT_TRUE(says(text.str(), "Rank 2 on node2 makes the others wait for its input: 3.80 ms"));
}

TEST(JoinedRanks, AreThoseOfTheWholeJobIfARecordHasThem) {
  RunResult all = record_of(0, 1);
  all.ranks.push_back(record_of(1, 1).ranks.front());
  all.rank_skew = RankSkew{.culprit = Culprit::moving};
  const std::vector<RunResult> records{all, record_of(1, 0)};
  const JoinedRanks joined = join_ranks(records);
  EXPECT_EQ(joined.ranks.size(), 2U);
  EXPECT_EQ(joined.skew->culprit, Culprit::moving);
  EXPECT_TRUE(document::is_empty(ranks_section(std::vector<RunResult>(2))));
}

TEST(RankSkew, OneRankMakesNoOtherWaitAndAFewStepsDecideNothing) {
  EXPECT_EQ(find_skew({}, 10).culprit, Culprit::none);
  const std::vector<RankWaits> few{{0, "a", std::vector<double>(19, 0.0)},
                                   {1, "b", std::vector<double>(19, 50.0)}};
  EXPECT_EQ(find_skew(few, 10).culprit, Culprit::undecided);
  EXPECT_TRUE(says(sentence_of(find_skew(few, 10)), "It is not decided whether"));
  EXPECT_EQ(find_skew(few, 10).spread.p50, 50);
  EXPECT_EQ(find_skew(std::span(few).first(1), 10).decided_percent, 0);
}

}  // namespace
}  // namespace penstock
