// SPDX-License-Identifier: Apache-2.0
// Window, rate, idle time, parts and accelerator utilisation of the ranks of a run, for every way
// to divide the same devices into threads and processes.
#include "bench/analysis/rank_steps.h"
#include "bench/run/processes/packed_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bench/run/processes/process_run.h"
#include "bench/run/runner.h"
#include "dataflow/error.h"
#include "tests/support/processes_in_memory.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

constexpr Nanoseconds kCompute = 9ms;
constexpr std::int32_t kImages = 8;

StepTimes step_of(Nanoseconds offered, Nanoseconds start, Nanoseconds completion) {
  StepTimes step;
  step.offered = step.copied = offered;
  step.start = start;
  step.completion = completion;
  step.input_wait = start / 2;
  step.result.images = kImages;
  return step;
}

/// A leg of ranks that wait for each other in each of `steps` steps, which compute for 9 ms.
/// Batches come late on one rank or another, and the ranks begin up to 1 ms apart.
std::vector<Leg> leg_in_step(std::size_t ranks, std::size_t steps, Time begin) {
  std::mt19937 random(static_cast<unsigned>(ranks));
  const auto up_to = [&random](int most_us) {
    return Nanoseconds(
        std::chrono::microseconds(std::uniform_int_distribution(0, most_us)(random)));
  };
  std::vector<Leg> leg(ranks);
  for (Leg& rank : leg) rank.begin = begin + up_to(1000);
  Time before = begin + 1ms;
  for (std::size_t i = 0; i < steps; ++i) {
    std::vector<Time> starts;
    for (std::size_t rank = 0; rank < ranks; ++rank) starts.push_back(before + up_to(60'000));
    before = *std::ranges::max_element(starts) + kCompute;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const Time zero = leg[rank].begin;
      leg[rank].steps.push_back(
          step_of(starts[rank] - zero - 1ms, starts[rank] - zero, before - zero));
    }
  }
  return leg;
}

/// Rank r gets a batch each `periods[r]` and computes for 2 ms.
RankSteps steps_apart(const std::vector<Nanoseconds>& periods, std::size_t steps) {
  RankSteps all{.legs = {{}}, .together = 1};
  for (const Nanoseconds period : periods) {
    Leg leg{.begin = Time(100s), .end = {}, .steps = {}};
    for (std::size_t i = 0; i < steps; ++i) {
      const Nanoseconds end = static_cast<std::int64_t>(i + 1) * period;
      leg.steps.push_back(step_of(end - 2ms, end - 2ms, end));
    }
    all.legs.front().push_back(leg);
  }
  return all;
}

RunResult result_of(const RankSteps& steps) {
  RunResult result;
  result.facts["emulated_step_ms"] = 9;
  result.images_per_step = kImages * std::ssize(steps.legs.front());
  result.rank_steps = steps;
  add_steps(steps, result);
  return result;
}

/// The run's result if `processes` processes have the same number of these devices each.
RunResult divided(const RankSteps& all, std::size_t processes) {
  const std::size_t devices = all.legs.front().size() / processes;
  std::vector<RunResult> results;
  for (std::size_t process = 0; process < processes; ++process) {
    RankSteps own{.legs = {}, .together = all.together, .exchanges = all.exchanges};
    for (const std::vector<Leg>& leg : all.legs) {
      const auto first = leg.begin() + static_cast<std::ptrdiff_t>(process * devices);
      own.legs.emplace_back(first, first + static_cast<std::ptrdiff_t>(devices));
    }
    results.push_back(result_of(own));
  }
  ProcessesInMemory(static_cast<std::int32_t>(processes)).run([&](cluster::Processes& self) {
    gather_ranks(self, results[static_cast<std::size_t>(self.launch().rank)]);
  });
  return results.front();
}

void expect_equal(const RunResult& threads, const RunResult& processes) {
  EXPECT_EQ(processes.img_per_s, threads.img_per_s);
  EXPECT_EQ(processes.window_s, threads.window_s);
  EXPECT_EQ(processes.images_per_step, threads.images_per_step);
  EXPECT_EQ(processes.step_ms, threads.step_ms);
  EXPECT_EQ(processes.input_wait_ms, threads.input_wait_ms);
  EXPECT_EQ(processes.device_idle_ms, threads.device_idle_ms);
  EXPECT_EQ(processes.starved_ms, threads.starved_ms);
  EXPECT_EQ(processes.copy_exposed_ms, threads.copy_exposed_ms);
  EXPECT_EQ(processes.late_ms, threads.late_ms);
  EXPECT_EQ(processes.exchange_exposed_ms, threads.exchange_exposed_ms);
  EXPECT_EQ(processes.device_idle_percent, threads.device_idle_percent);
  EXPECT_EQ(processes.facts, threads.facts);
  ASSERT_EQ(processes.parts.size(), threads.parts.size());
  for (std::size_t i = 0; i < threads.parts.size(); ++i) {
    EXPECT_EQ(processes.parts[i].name, threads.parts[i].name);
    EXPECT_EQ(processes.parts[i].p50, threads.parts[i].p50);
    EXPECT_EQ(processes.parts[i].max, threads.parts[i].max);
  }
}

TEST(RankSteps, AreTheSameForEveryDivisionIntoThreadsAndProcesses) {
  RankSteps in_step{.legs = {leg_in_step(12, 40, Time(5s)), leg_in_step(12, 7, Time(60s))}};
  for (Leg& rank : in_step.legs.front()) {
    for (StepTimes& step : rank.steps) step.exchange = 1ms + step.offered % 1us;
  }
  for (const bool exchanges : {false, true}) {
    in_step.exchanges = exchanges;
    const RunResult threads = result_of(in_step);
    ASSERT_EQ(threads.step_ms.size(), 47U);
    for (const std::size_t processes : {2, 3, 4, 12}) {
      SCOPED_TRACE(processes);
      expect_equal(threads, divided(in_step, processes));
    }
  }
  RankSteps apart = steps_apart({20ms, 30ms, 50ms, 80ms}, 60);
  for (const std::size_t together : {1, 2}) {  // 2: devices of a worker wait for each other
    apart.together = together;
    for (const std::size_t processes : {2, 4}) {
      if (together * processes > 4) continue;
      SCOPED_TRACE(processes);
      expect_equal(result_of(apart), divided(apart, processes));
    }
  }
}

TEST(RankSteps, ARankThatWaitsForAnothersBatchDoesNotCompute) {
  for (const std::size_t ranks : {1, 2, 3, 4}) {
    SCOPED_TRACE(ranks);
    const RunResult result = divided(RankSteps{.legs = {leg_in_step(ranks, 50, Time(5s))}}, ranks);
    double all = 0;
    for (std::size_t i = 0; i < 50; ++i) {
      const double idle = result.device_idle_ms[i];
      EXPECT_NEAR(result.starved_ms[i] + result.copy_exposed_ms[i] + result.late_ms[i], idle, 1e-9);
      EXPECT_NEAR(idle + 9, result.step_ms[i], 1e-9) << "the parts are the step";
      all += result.step_ms[i];
    }
    const auto compute = std::ranges::find(result.parts, "compute", &PartTimes::name);
    ASSERT_NE(compute, result.parts.end());
    EXPECT_NEAR(compute->p50, 9, 1e-9);
    EXPECT_NEAR(compute->max, 9, 1e-9);
    EXPECT_NEAR(result.device_idle_percent, 100 - 100 * 50 * 9 / all, 0.1);
    EXPECT_NEAR(result.window_s, all / 1000, 1e-3);
    EXPECT_NEAR(result.img_per_s * result.window_s, static_cast<double>(50 * kImages * ranks),
                static_cast<double>(kImages * ranks));
    const double rest = all - result.step_ms.front();
    EXPECT_NEAR(result.facts.at("au_percent_dlio"), 100 * 49 * 9 / rest, 1e-9);
    EXPECT_NEAR(result.facts.at("au_percent_rule"), result.facts.at("au_percent_dlio"), 2);
    EXPECT_FALSE(result.facts.contains("steps_outside_window"));
  }
}

/// Both ranks start at once and compute for 9 ms. The first one has the gradients of the other at
/// 12 ms, and the other one has its weights at 14 ms.
TEST(RankSteps, WhatARankWaitsForOthersIsExchange) {
  RankSteps steps{.legs = {{{}, {}}}, .exchanges = true};
  for (const Nanoseconds at : {0ms, 14ms}) {
    for (const auto& [rank, exchange] : {std::pair(0U, 3ms), std::pair(1U, 5ms)}) {
      StepTimes step = step_of(at, at, at + kCompute + exchange);
      step.exchange = exchange;
      steps.legs.front()[rank].steps.push_back(step);
    }
  }
  for (int order = 0; order < 2; ++order) {
    const RunResult result = divided(steps, 2);
    EXPECT_EQ(result.step_ms, (std::vector<double>{14, 14}));
    EXPECT_EQ(result.exchange_exposed_ms, (std::vector<double>{5, 5}));
    EXPECT_EQ(result.input_wait_ms, (std::vector<double>{0, 7})) << "of the rank that waits most";
    ASSERT_EQ(result.parts.size(), 6U);
    EXPECT_EQ(result.parts[3].name, "compute");
    EXPECT_EQ(result.parts[3].max, 9);
    EXPECT_NEAR(result.facts.at("au_percent_dlio"), 100 * 9 / 14.0, 1e-9);
    std::swap(steps.legs.front()[0], steps.legs.front()[1]);
  }
}

/// Rank `late` of three waits for its batch for `delay` after each step; the others do not wait.
RankSteps with_a_late_rank(std::size_t late, Nanoseconds delay, std::size_t steps) {
  RankSteps all{.legs = {std::vector<Leg>(3)}};
  for (std::size_t rank = 0; rank < 3; ++rank) {
    Leg& leg = all.legs.front()[rank];
    leg.begin = Time(5s + rank * 3s);  // clocks of different hosts
    for (std::size_t i = 0; i < steps; ++i) {
      const Nanoseconds before = leg.steps.empty() ? Nanoseconds{} : leg.steps.back().completion;
      StepTimes step = step_of(before + (rank == late ? delay : -2ms), before + delay,
                               before + delay + kCompute);
      step.input_wait = rank == late ? delay : 0ms;
      leg.steps.push_back(step);
    }
  }
  return all;
}

TEST(RankWaits, NameTheProcessThatMakesTheOthersWait) {
  const RankSteps steps = with_a_late_rank(1, 6ms, 60);
  const RunResult result = divided(steps, 3);
  ASSERT_TRUE(result.rank_skew);
  EXPECT_EQ(result.rank_skew->culprit, Culprit::rank);
  EXPECT_EQ(result.rank_skew->rank, 1);
  EXPECT_EQ(result.rank_skew->host, result.ranks[1].host);
  EXPECT_NEAR(result.rank_skew->delay_ms, 6, 1e-9);
  EXPECT_NEAR(result.rank_skew->delay_percent, 40, 1) << "of 15 ms";
  EXPECT_EQ(result.rank_skew->decided_percent, 100);
  EXPECT_EQ(result.rank_skew->spread.p99, 6);
  EXPECT_EQ(result.ranks[1].exposed_wait.p50, 6);
  EXPECT_EQ(result.ranks[1].batch_ready.p95, 6);
  EXPECT_EQ(result.ranks[1].last_percent, 100);
  EXPECT_EQ(result.ranks[2].exposed_wait.p99, 0);
  EXPECT_EQ(result.ranks[2].last_percent, 0);
  EXPECT_TRUE(says(format_ranks(result), "rank 1 on "));
}

TEST(RankWaits, AreKnownButBlameNobodyIfRanksDoNotWaitForEachOther) {
  const RunResult result = divided(steps_apart({20ms, 80ms}, 60), 2);
  EXPECT_FALSE(result.rank_skew);
  EXPECT_EQ(result.ranks[1].exposed_wait.p50, 78);
  EXPECT_FALSE(divided(with_a_late_rank(1, 6ms, 60), 1).rank_skew) << "threads of one process";
}

/// While the late rank's batch is awaited, the others work ahead, and seem not to wait at all.
TEST(RankWaits, TakeOutTheWorkThatOthersDoAhead) {
  const RankSteps steps = with_a_late_rank(1, 21ms, 60);
  RunResult result = result_of(steps);  // steps of 30 ms, of which 9 ms are computed
  result.ranks = {
      {.rank = 0, .batch_ms = 14}, {.rank = 1, .batch_ms = 30}, {.rank = 2, .batch_ms = 15}};
  add_rank_waits(steps, std::vector<DevicesOf>{{0, 1}, {1, 1}, {2, 1}}, result);
  ASSERT_TRUE(result.rank_skew);
  EXPECT_NEAR(result.rank_skew->more_work_ms, 15, 1e-9);
  EXPECT_NEAR(result.rank_skew->delay_ms, 15, 0.5) << "without the delay, steps would take 15 ms";
}

TEST(RankWaits, AFeedersWorkIsThatOfItsBusiestWorkers) {
  RunResult result;
  EXPECT_EQ(work_ms_of(result), 0);
  result.step_ms.resize(10);
  StageUse decode{.name = "decode", .workers = "decode threads", .threads = 4};
  decode.wall_s = 0.8;
  StageUse next{.name = "next(loader)", .workers = "loader", .role = StageRole::asks};
  next.wall_s = 0.1;
  StageUse outside{.name = "produce", .workers = "producer", .role = StageRole::produces};
  outside.wall_s = 9;
  result.stages = {decode, next, outside};
  EXPECT_NEAR(work_ms_of(result), 20, 1e-9);
}

/// The known answer of asynchronous ranks: 8 images each 20 ms and each 80 ms are 500 img/s.
TEST(RankSteps, RanksThatDoNotWaitHaveTheRateOfTheTimeInWhichAllTrain) {
  const RankSteps apart = steps_apart({20ms, 80ms}, 60);
  for (const RunResult& result : {result_of(apart), divided(apart, 2)}) {
    EXPECT_NEAR(result.img_per_s, 500, 1e-9);
    EXPECT_NEAR(result.window_s, 1.2, 1e-9);
    EXPECT_EQ(result.facts.at("steps_outside_window"), 45);
    EXPECT_NEAR(result.device_idle_percent, (90 + 97.5) / 2, 0.1);
    EXPECT_NEAR(result.step_ms[7], 50, 1e-9) << "the mean of the ranks";
    EXPECT_NEAR(result.device_idle_ms[7], 48, 1e-9);
  }
  const RunResult processes = divided(apart, 2);
  ASSERT_EQ(processes.notes.size(), 1U);
  EXPECT_TRUE(says(processes.notes.front(), "the 1.20 s in which all of them train; 45 steps"));
  ASSERT_EQ(processes.ranks.size(), 2U);
  EXPECT_NEAR(processes.ranks[0].img_per_s, 400, 1e-9);
  EXPECT_NEAR(processes.ranks[1].img_per_s, 100, 1e-9);
  EXPECT_NEAR(processes.ranks[1].window_s, 4.8, 1e-9);
  RunResult even = result_of(steps_apart({20ms, 20ms}, 60));
  EXPECT_EQ(even.facts.at("steps_outside_window"), 0);
  note_steps_outside(even);
  EXPECT_TRUE(even.notes.empty());
}

TEST(RankSteps, AStepAcrossTheWindowsEdgeCountsInPart) {
  // The window has the 60 steps of the first rank, and 17 1/7 of the second one.
  const RunResult result = result_of(steps_apart({20ms, 70ms}, 60));
  EXPECT_NEAR(result.window_s, 1.2, 1e-9);
  EXPECT_NEAR(result.img_per_s, 8 / 0.020 + 8 / 0.070, 1e-9);
}

TEST(RankSteps, OfAnotherMachineBeginTheirLegsWithTheFirstProcess) {
  const RankSteps here = steps_apart({20ms, 20ms}, 10);
  RankSteps there = here;
  for (Leg& rank : there.legs.front()) rank.begin += std::chrono::hours(5);
  std::string bytes = pack_steps(there);
  bytes.front() = static_cast<char>(bytes.front() + 1);  // another machine
  RankSteps all;
  join_steps(all, pack_steps(here));
  join_steps(all, bytes);
  ASSERT_EQ(all.legs.front().size(), 4U);
  for (const Leg& rank : all.legs.front()) EXPECT_EQ(rank.begin, Time(100s));
}

TEST(RankSteps, ThatAreCutOffAreRefused) {
  const std::string bytes = pack_steps(steps_apart({20ms}, 2));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    RankSteps all;
    EXPECT_TRUE(says(thrown_by<DataError>([&] { join_steps(all, bytes.substr(0, size)); }), "cut"))
        << size;
  }
}

TEST(RankStepsOfAnyData, AStepHasTheMeanOfTheSamplesOfAllRanks) {
  RankSteps together{.legs = {leg_in_step(2, 4, Time(100s))}};
  for (std::size_t i = 0; i < 4; ++i) {
    together.legs[0][0].steps[i].result.images = static_cast<std::int32_t>(10 * (i + 1));
    together.legs[0][1].steps[i].result.images = 300;
  }
  RankSteps apart = steps_apart({100ms, 200ms}, 100);
  for (RankSteps* const steps : {&together, &apart}) {
    RunResult result;
    result.unit = "tokens";
    result.images_per_step = 999;  // of the first batch
    add_steps(*steps, result);
    EXPECT_EQ(result.images_per_step, steps == &together ? 25 + 300 : 2 * kImages);
  }
}

}  // namespace
}  // namespace penstock
