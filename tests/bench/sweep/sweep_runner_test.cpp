// SPDX-License-Identifier: Apache-2.0
// Rounds, budget and order of a sweep, with fake runs that advance the clock.
#include "bench/sweep/sweep_runner.h"

#include <gtest/gtest.h>

#include <set>

#include "dataflow/error.h"
#include "tests/bench/record/sweep_rows.h"
#include "tests/bench/turned_clock.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

struct Counting final : SweepListener {
  void rests(double) override { ++rests_told; }
  void run_begins(const SweepMoment& moment) override {
    ++begun;
    left_s.push_back(moment.left_s);
  }
  void run_ended(const SweepMoment&, const RunResult&) override { ++ended; }
  void results_changed(const SweepResult&) override { ++changed; }
  int rests_told = 0, begun = 0, ended = 0, changed = 0;
  std::vector<double> left_s;
};

class SweepRunnerTest : public testing::Test {
 protected:
  SweepRunnerTest() {
    for (const char* feeder : {"gpu", "host", "cpu"}) {
      plan_.configurations.emplace_back().fake_location = feeder;
    }
    plan_.repetitions = 4;
    plan_.seed = 5;
  }

  SweepResult run() {
    SweepRunner runner(
        plan_,
        [this](const RunConfig& config, const std::stop_token&) {
          clock_.turn(10s);
          ran_.push_back(config);
          if (ran_.size() == stop_after_) stop_.request_stop();
          const double rate = rate_of_(config);
          RunResult result = make_result(Status::ok, rate, rate);
          if (config.fake_location == lacking_) result.status = Status::skipped;
          if (ran_.size() > fails_after_) result.status = Status::failed;
          result.config = config;
          result.config.batch_size = 64;
          return result;
        },
        clock_);
    return runner.run(listener_, stop_.get_token());
  }

  SweepPlan plan_;
  TurnedClock clock_;
  Counting listener_;
  std::stop_source stop_;
  std::vector<RunConfig> ran_;
  std::size_t stop_after_ = 1000, fails_after_ = 1000;
  std::string lacking_;
  std::function<double(const RunConfig&)> rate_of_ = [](const RunConfig&) { return 100.0; };
};

TEST_F(SweepRunnerTest, EachRoundRunsEveryConfigurationOnceWithASeedOfItsOwn) {
  const SweepResult sweep = run();
  ASSERT_EQ(ran_.size(), 12U);
  for (std::size_t round = 0; round < 4; ++round) {
    std::set<std::string> feeders;
    for (std::size_t i = 0; i < 3; ++i) {
      const RunConfig& config = ran_[3 * round + i];
      feeders.insert(config.fake_location);
      EXPECT_EQ(config.seed, RunConfig{}.seed + round);
      EXPECT_EQ(config.fake_location, sweep.rows[sweep.rounds[round][i]].config.fake_location);
    }
    EXPECT_EQ(feeders.size(), 3U);
  }
  for (const Row& row : sweep.rows) {
    EXPECT_EQ(row.repetitions.size(), 4U);
    EXPECT_EQ(row.status, Status::ok);
    EXPECT_EQ(row.config.batch_size, 64) << "resolved";
    EXPECT_EQ(row.config.seed, RunConfig{}.seed);
  }
  EXPECT_TRUE(sweep.rows[0].is_ceiling);
  EXPECT_FALSE(sweep.rows[1].is_ceiling);
}

TEST_F(SweepRunnerTest, TheOrderDependsOnTheSeedAlone) {
  plan_.repetitions = 20;
  plan_.time_budget = 1h;
  const auto first = run().rounds;
  EXPECT_EQ(run().rounds, first);
  plan_.seed = 6;
  EXPECT_NE(run().rounds, first);
  EXPECT_GT(std::set(first.begin(), first.end()).size(), 3U) << "rounds have orders of their own";
}

TEST_F(SweepRunnerTest, TellsOfResultsBeforeTheFirstRunAndAfterEach) {
  run();
  EXPECT_EQ(listener_.begun, 12);
  EXPECT_EQ(listener_.ended, 12);
  EXPECT_EQ(listener_.changed, 1 + 12 + 1);
}

TEST_F(SweepRunnerTest, BeginsNoRoundThatDoesNotFitIntoTheBudget) {
  plan_.time_budget = 75s;
  const SweepResult sweep = run();
  EXPECT_EQ(ran_.size(), 6U);
  EXPECT_TRUE(mentions(sweep.warnings, "time budget of 75 s ended after 6 of 12 runs"));
  for (const Row& row : sweep.rows) EXPECT_EQ(row.status, Status::ok);
}

TEST_F(SweepRunnerTest, TheFirstRoundIsCompleteWhateverTheBudget) {
  plan_.time_budget = 1s;
  run();
  EXPECT_EQ(ran_.size(), 3U);
}

TEST_F(SweepRunnerTest, AStopRuleEndsItAfterAWholeRoundAndBudgetsThenGoWithoutSaying) {
  int begun = 0, ended = 0;
  plan_.on_round = [&](std::int32_t, bool has_ended) { ++(has_ended ? ended : begun); };
  plan_.enough = [](const SweepResult& sweep) { return sweep.rounds.size() == 2; };
  run();
  EXPECT_EQ(ran_.size(), 6U);
  EXPECT_EQ(begun, 2);
  EXPECT_EQ(ended, 2);
  plan_.enough = [](const SweepResult&) { return false; };
  plan_.time_budget = 75s;
  ran_.clear();
  EXPECT_FALSE(mentions(run().warnings, "time budget"));
  EXPECT_EQ(ran_.size(), 6U);
}

TEST_F(SweepRunnerTest, EstimatesTheTimeLeftFromWhatRan) {
  run();
  EXPECT_DOUBLE_EQ(listener_.left_s.front(), 300);
  EXPECT_DOUBLE_EQ(listener_.left_s[1], 110);
  EXPECT_DOUBLE_EQ(listener_.left_s.back(), 10);
}

TEST_F(SweepRunnerTest, AStopKeepsWhatWasMeasuredAndCountsWholeRounds) {
  stop_after_ = 5;
  const SweepResult sweep = run();
  EXPECT_EQ(ran_.size(), 5U);
  std::size_t aside = 0;
  for (const Row& row : sweep.rows) {
    EXPECT_EQ(row.repetitions.size(), 1U);
    aside += row.set_aside.size();
  }
  EXPECT_EQ(aside, 2U);
  EXPECT_TRUE(mentions(sweep.warnings, "stopped after 5 of 12 runs"));
  EXPECT_TRUE(mentions(sweep.warnings, "2 runs of its last round"));
}

TEST_F(SweepRunnerTest, AStopInTheFirstRoundKeepsItsRuns) {
  stop_after_ = 2;
  const SweepResult sweep = run();
  std::size_t kept = 0;
  for (const Row& row : sweep.rows) kept += row.repetitions.size();
  EXPECT_EQ(kept, 2U);
}

TEST_F(SweepRunnerTest, AFailureInTheLastRoundStaysVisible) {
  stop_after_ = 5;
  fails_after_ = 4;
  EXPECT_TRUE(has_failures(run()));
}

TEST_F(SweepRunnerTest, WhatTheMachineLacksIsNotTriedAgain) {
  lacking_ = "host";
  const SweepResult sweep = run();
  EXPECT_EQ(sweep.rows[1].status, Status::skipped);
  EXPECT_EQ(sweep.rows[1].repetitions.size(), 1U);
  EXPECT_EQ(ran_.size(), 9U);
}

TEST_F(SweepRunnerTest, AbsentComponentsAreSkippedAndSlipsAreRefused) {
  plan_.configurations.emplace_back().fake_location = "zmq-serve";
  const SweepResult sweep = run();
  EXPECT_EQ(sweep.rows[3].status, Status::skipped);
  EXPECT_TRUE(sweep.rows[3].repetitions.empty());
  plan_.configurations.emplace_back().fake_location = "gqu";
  EXPECT_THROW(run(), ConfigError);
}

TEST_F(SweepRunnerTest, BeginsWhenTheMachineHasBeenAtRestForTwoSeconds) {
  const std::vector<double> busy{90, 2, 40, 3, 1};
  std::size_t asked = 0;
  plan_.rest = 30s;
  plan_.busy_percent = [&] { return busy.at(asked++); };
  const SweepResult sweep = run();
  EXPECT_EQ(asked, 5U);
  EXPECT_EQ(listener_.rests_told, 2);
  EXPECT_EQ(sweep.environment.busy_percent, 1);
  EXPECT_FALSE(mentions(sweep.warnings, "rest"));
  EXPECT_DOUBLE_EQ(listener_.left_s.front(), 300) << "waiting is no part of the budget";
}

TEST_F(SweepRunnerTest, BeginsOnABusyMachineWhenTheWaitIsOverAndSaysSo) {
  plan_.rest = 30s;
  plan_.busy_percent = [] { return 43.0; };
  const SweepResult sweep = run();
  EXPECT_EQ(ran_.size(), 12U);
  EXPECT_EQ(listener_.rests_told, 30);
  EXPECT_TRUE(mentions(sweep.warnings,
                       "was not idle before the first round: other "
                       "programs used 43 % of its processors"));
}

TEST_F(SweepRunnerTest, MeasuresAnOutlyingRoundAgainAndKeepsItOutOfTheFigures) {
  plan_.repeat_outlier = true;
  rate_of_ = [this](const RunConfig& config) {
    const bool outlying = config.fake_location == "cpu" && ran_.size() > 3 && ran_.size() <= 6;
    return outlying ? 50.0 : 79 + 0.1 * static_cast<double>(config.seed - RunConfig{}.seed);
  };
  const SweepResult sweep = run();
  ASSERT_EQ(ran_.size(), 15U);
  EXPECT_EQ(sweep.rounds.size(), 5U);
  for (const Row& row : sweep.rows) {
    EXPECT_EQ(row.repetitions.size(), 4U);
    ASSERT_EQ(row.set_aside.size(), 1U);
    EXPECT_EQ(row.set_aside[0].round, 1);
    EXPECT_EQ(row.repetitions.back().round, 4);
  }
  EXPECT_GT(sweep.rows[2].img_per_s->low, 70);
  EXPECT_TRUE(mentions(sweep.warnings, "with cpu round 2 reached 50 img/s, the others 79 to 79"));
  EXPECT_TRUE(mentions(sweep.warnings, "that round was measured again"));
  EXPECT_EQ(listener_.ended, 15);
}

TEST_F(SweepRunnerTest, RepeatsNoRoundWhereTheOthersDifferAsMuchOrThereIsNoTime) {
  plan_.repeat_outlier = true;
  rate_of_ = [](const RunConfig& config) {
    return 100 * (1 + 0.1 * static_cast<double>(config.seed - RunConfig{}.seed));
  };
  EXPECT_TRUE(run().rows[0].set_aside.empty());
  ran_.clear();
  rate_of_ = [this](const RunConfig&) { return ran_.size() <= 3 ? 50.0 : 100.0; };
  plan_.time_budget = 125s;
  const SweepResult sweep = run();
  EXPECT_EQ(ran_.size(), 12U);
  EXPECT_TRUE(mentions(sweep.warnings, "no time to measure that round again"));
}

TEST_F(SweepRunnerTest, WarnsOfFewRepetitionsAndManyThreads) {
  EXPECT_FALSE(mentions(run().warnings, "repetition"));
  plan_.repetitions = 2;
  plan_.configurations[0].feeder_threads = 100000;
  const SweepResult sweep = run();
  EXPECT_TRUE(mentions(sweep.warnings, "2 repetitions of each row"));
  EXPECT_TRUE(mentions(sweep.warnings, "--feeder-threads is 100000"));
}

}  // namespace
}  // namespace penstock
