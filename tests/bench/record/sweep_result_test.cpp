// SPDX-License-Identifier: Apache-2.0
#include "bench/record/sweep_result.h"

#include <gtest/gtest.h>

#include "tests/bench/record/sweep_rows.h"

namespace penstock {
namespace {

SweepResult summarised(std::vector<Row> rows) {
  SweepResult sweep;
  sweep.repetitions = 3;
  sweep.rows = std::move(rows);
  summarise(sweep);
  return sweep;
}

Row row_of(std::initializer_list<Status> statuses) {
  Row row = make_row("cpu");
  std::int32_t round = 0;
  for (const Status status : statuses) {
    add_repetition(row, round++, make_result(status, status == Status::failed ? 0 : 800, 790));
  }
  return row;
}

Status status_of(std::initializer_list<Status> statuses) {
  return summarised({row_of(statuses)}).rows[0].status;
}

TEST(InputCost, OfPairsIsTheSpreadOfEachPairsCost) {
  const statistics::Pair steps[] = {{100, 1000 / 9.0}, {100, 125}, {50, 100}};  // 100 images each
  const statistics::CostEstimate cost = statistics::estimate_cost(steps, 100, {});
  EXPECT_TRUE(cost.percent.is_spread);
  EXPECT_NEAR(cost.percent.low, 10, 1e-9);
  EXPECT_NEAR(cost.percent.value, 20, 1e-9);
  EXPECT_NEAR(cost.percent.high, 50, 1e-9);
  EXPECT_NEAR(cost.img_per_s_lost.value, 200, 1e-9);
  EXPECT_NEAR(cost.ms_per_step.value, 25, 1e-9);
}

TEST(InputCost, AboveHalfOfTheRateIsDecidedByOnePair) {
  const auto verdict = [](std::vector<statistics::Pair> steps) {
    return statistics::estimate_cost(steps, 100, {}).verdict;
  };
  EXPECT_EQ(verdict({{100, 201}}), statistics::Verdict::slower);
  EXPECT_EQ(verdict({{100, 199}}), statistics::Verdict::undecided);
  EXPECT_EQ(verdict({{100, 500}, {100, 150}}), statistics::Verdict::undecided);
  EXPECT_EQ(verdict({{100, 500}, {100, 210}}), statistics::Verdict::slower);
}

TEST(RowStatus, TheWorstRepetitionDecides) {
  using enum Status;
  EXPECT_EQ(status_of({}), skipped);
  EXPECT_EQ(status_of({ok, ok, ok}), ok);
  EXPECT_EQ(status_of({skipped}), skipped);
  EXPECT_EQ(status_of({failed, failed}), failed);
  EXPECT_EQ(status_of({ok, failed, ok}), partial);
  EXPECT_EQ(status_of({ok, partial}), partial);
  EXPECT_EQ(status_of({partial}), partial);
  EXPECT_EQ(status_of({partial, failed}), failed);
  EXPECT_EQ(status_of({ok, draining}), draining);
  EXPECT_EQ(status_of({failed, draining}), draining);
}

TEST(RowStatus, TheReasonCountsTheRepetitions) {
  using enum Status;
  EXPECT_EQ(summarised({row_of({ok, failed, ok})}).rows[0].reason,
            "1 of 3 repetitions failed: because");
  EXPECT_EQ(summarised({row_of({failed, failed})}).rows[0].reason, "because");
  EXPECT_EQ(summarised({row_of({})}).rows[0].reason, "not measured");
  Row absent = make_row("queue");
  absent.unavailable = "not built";
  EXPECT_EQ(summarised({absent}).rows[0].status, skipped);
  EXPECT_EQ(summarised({absent}).rows[0].reason, "not built");
}

TEST(RowFigures, ComeFromOkRepetitionsOnly) {
  Row row = make_ok_row("cpu", 1000);
  add_repetition(row, 3, make_result(Status::partial, 1, 1));
  const Row result = summarised({row}).rows[0];
  ASSERT_TRUE(result.img_per_s.has_value());
  EXPECT_DOUBLE_EQ(result.img_per_s->median, 1000);
  EXPECT_DOUBLE_EQ(result.img_per_s->low, 990);
  EXPECT_DOUBLE_EQ(result.img_per_s->high, 1010);
}

TEST(RowNotes, SayOnceWhatRoundsDifferInByNumbersOnly) {
  Row row = make_row("zmq-consume");
  const std::vector<std::vector<std::string>> rounds = {
      {"34 % waited (p99 71.1 ms)", "img_1.jpg is damaged", "img_2.jpg is damaged"},
      {"35 % waited (p99 9 ms)", "img_1.jpg is damaged", "slots: 3 of 4"}};
  for (const std::vector<std::string>& notes : rounds) {
    RunResult result = make_result(Status::ok, 100, 100);
    result.notes = notes;
    add_repetition(row, static_cast<std::int32_t>(row.repetitions.size()), result);
  }
  EXPECT_EQ(summarised({row}).rows[0].notes,
            (std::vector<std::string>{rounds[0][0], rounds[0][1], rounds[0][2], rounds[1][2]}));
}

TEST(RowCost, ComparesRepetitionsOfTheSameRound) {
  // The machine slows down from round to round: rates spread by half, the cost does not spread.
  Row ceiling = make_row("gpu", true), slow = make_row("cpu");
  for (std::int32_t round = 0; round < 3; ++round) {
    const double rate = 1000.0 / (round + 1);
    add_repetition(ceiling, round, make_result(Status::ok, rate, rate));
    add_repetition(slow, round, make_result(Status::ok, 0.75 * rate, 0.75 * rate));
  }
  const SweepResult sweep = summarised({slow, ceiling});
  ASSERT_TRUE(sweep.rows[0].input_cost.has_value()) << sweep.rows[0].unresolved;
  const statistics::CostEstimate& cost = *sweep.rows[0].input_cost;
  EXPECT_NEAR(cost.percent.low, 25, 1e-9);
  EXPECT_NEAR(cost.percent.high, 25, 1e-9);
  EXPECT_GE(cost.img_per_s_lost.value, 1000 / 3 / 4.0);
  EXPECT_LE(cost.img_per_s_lost.value, 250);
  EXPECT_DOUBLE_EQ(sweep.rows[1].input_cost->percent.high, 0);
}

TEST(RowCost, UsesTheRateThatTheFeederKeepsUp) {
  Row ceiling = make_row("gpu", true), slow = make_row("cpu");
  add_repetition(ceiling, 0, make_result(Status::ok, 1000, 1100));
  add_repetition(slow, 0, make_result(Status::ok, 990, 900));
  const SweepResult sweep = summarised({ceiling, slow});
  EXPECT_NEAR(sweep.rows[1].input_cost->percent.value, 10, 1e-9);
}

TEST(RowCost, AtTheRateOfTheCeilingIsNone) {
  // At both ends of a window, one batch more or less may be on its way.
  Row ceiling = make_row("gpu", true), fed = make_row("host");
  for (std::int32_t round = 0; round < 3; ++round) {
    add_repetition(ceiling, round, make_result(Status::ok, 2000, 2000));
    add_repetition(fed, round, make_result(Status::ok, 2000, 1980));
    fed.repetitions.back().result.reserve_start = 3;
    fed.repetitions.back().result.reserve_end = 2;
  }
  const SweepResult sweep = summarised({ceiling, fed});
  const statistics::CostEstimate& cost = *sweep.rows[1].input_cost;
  EXPECT_EQ(cost.percent.value, 0);
  EXPECT_EQ(cost.verdict, statistics::Verdict::equal);
}

TEST(RowCost, ReachesUpToWhatBatchesOfBeforeAShortWindowMayHide) {
  Row ceiling = make_row("gpu", true), fed = make_row("zmq-consume");
  RunResult result = make_result(Status::ok, 1000, 1000);
  result.facts["most_hidden_percent"] = 33;
  add_repetition(ceiling, 0, result);
  add_repetition(fed, 0, result);
  const SweepResult sweep = summarised({ceiling, fed});
  ASSERT_TRUE(sweep.rows[1].input_cost.has_value()) << sweep.rows[1].unresolved;
  EXPECT_DOUBLE_EQ(sweep.rows[1].input_cost->percent.low, 0);
  EXPECT_DOUBLE_EQ(sweep.rows[1].input_cost->percent.value, 0);
  EXPECT_NEAR(sweep.rows[1].input_cost->percent.high, 33, 1e-9);
  EXPECT_EQ(sweep.rows[1].input_cost->verdict, statistics::Verdict::undecided);
  EXPECT_DOUBLE_EQ(sweep.rows[0].input_cost->percent.high, 0) << "its batches cost nothing to make";
}

TEST(RowCost, ComparesAcrossRoundsWhereNoneHasBoth) {
  Row ceiling = make_row("gpu", true), slow = make_row("cpu");
  add_repetition(ceiling, 0, make_result(Status::ok, 1000, 1000));
  add_repetition(ceiling, 1, make_result(Status::failed, 0, 0));
  add_repetition(slow, 0, make_result(Status::failed, 0, 0));
  add_repetition(slow, 1, make_result(Status::ok, 600, 600));
  const SweepResult sweep = summarised({ceiling, slow});
  EXPECT_NEAR(sweep.rows[1].input_cost->percent.value, 40, 1e-9);
  EXPECT_EQ(sweep.rows[1].input_cost->verdict, statistics::Verdict::undecided) << "nothing cancels";
}

TEST(RowCost, IsMeasuredAgainstTheSameTrainer) {
  Row one = make_ok_row("gpu", 1000, true), two = make_ok_row("gpu", 2000, true);
  Row slow = make_ok_row("cpu", 1000);
  two.config.num_gpus = slow.config.num_gpus = 2;
  const SweepResult sweep = summarised({one, two, slow});
  EXPECT_NEAR(sweep.rows[2].input_cost->percent.value, 50, 1e-9);
}

TEST(RowCost, IsUnresolvedWithoutACeilingAndForRowsThatAreNotOk) {
  const Row ceiling = make_ok_row("gpu", 1000, true);
  Row other = ceiling;
  other.config.num_gpus = 7;
  EXPECT_NE(summarised({other, make_ok_row("cpu", 500)}).rows[1].unresolved, "");
  for (const Status status : {Status::draining, Status::failed, Status::partial}) {
    const SweepResult sweep = summarised({ceiling, row_of({status})});
    EXPECT_FALSE(sweep.rows[1].input_cost.has_value());
    EXPECT_NE(sweep.rows[1].unresolved, "") << to_string(status);
  }
  Row drained = make_row("gpu", true);
  add_repetition(drained, 0, make_result(Status::draining, 1000, 1000));
  EXPECT_EQ(summarised({drained, make_ok_row("cpu", 500)}).rows[1].unresolved,
            "the gpu row is draining");
}

TEST(HasFailures, CountsFailuresButNotStops) {
  EXPECT_FALSE(has_failures(summarised({make_ok_row("cpu", 1)})));
  EXPECT_FALSE(has_failures(summarised({row_of({Status::draining, Status::skipped})})));
  EXPECT_TRUE(has_failures(summarised({row_of({Status::ok, Status::failed})})));
  Row stopped = row_of({Status::ok, Status::partial});
  EXPECT_TRUE(has_failures(summarised({stopped})));  // its data ended
  stopped.repetitions[1].result.exit_code = 130;
  EXPECT_FALSE(has_failures(summarised({stopped})));
}

}  // namespace
}  // namespace penstock
