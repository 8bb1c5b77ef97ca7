// SPDX-License-Identifier: Apache-2.0
#include "bench/run/run_outcome.h"

#include <gtest/gtest.h>

#include <chrono>

#include "bench/run/run_window.h"
#include "dataflow/error.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

TEST(RunOutcome, IsOkIfNothingWentWrong) {
  const Outcome outcome = outcome_of(RunEnd{.has_window = true, .window_steps = 8});
  EXPECT_EQ(outcome.status, Status::ok);
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.reason, "");
}

TEST(RunOutcome, NamesTheFailureBeforeAnythingElse) {
  const Outcome outcome =
      outcome_of(RunEnd{.failure = std::make_exception_ptr(DataError("no more")),
                        .stopped = true,
                        .data_ended = true});
  EXPECT_EQ(outcome.status, Status::failed);
  EXPECT_EQ(outcome.exit_code, 6);
  EXPECT_EQ(outcome.reason, "no more");
}

TEST(RunOutcome, IsPartialIfTheRunIsStoppedOrTheDataEndInTheWindow) {
  const Outcome stopped = outcome_of(RunEnd{.stopped = true, .window_steps = 3});
  EXPECT_EQ(stopped.status, Status::partial);
  EXPECT_EQ(stopped.exit_code, 130);
  EXPECT_EQ(stopped.reason, "stopped after 3 steps of the window");
  const Outcome ended = outcome_of(
      RunEnd{.data_ended = true, .has_window = true, .window_steps = 3, .requested_steps = 8});
  EXPECT_EQ(ended.status, Status::partial);
  EXPECT_EQ(ended.exit_code, 6);
  EXPECT_EQ(ended.reason, "the feeder's data ended after 3 of 8 steps");
}

TEST(RunOutcome, IsFailedIfTheDataEndDuringWarmUp) {
  const Outcome outcome =
      outcome_of(RunEnd{.data_ended = true, .warm_up_steps = 2, .planned_warm_up_steps = 5});
  EXPECT_EQ(outcome.status, Status::failed);
  EXPECT_EQ(outcome.exit_code, 6);
  EXPECT_TRUE(says(outcome.reason, "2 of 5 steps"));
}

TEST(RunOutcome, KeepsAnExtendedWindowWhoseDataEndAfterTheStepsAskedFor) {
  const Outcome outcome = outcome_of(RunEnd{.data_ended = true,
                                            .has_window = true,
                                            .window_steps = 9,
                                            .requested_steps = 8,
                                            .planned_steps = 20});
  EXPECT_EQ(outcome.status, Status::ok);
  EXPECT_TRUE(says(outcome.note, "after 9 of 20 steps"));
}

TEST(RunOutcome, IsDrainingIfTheReserveFell) {
  WindowReserve reserve{.counted = {.consumed = 20, .start = 10, .end = 0}, .start = 10};
  const Outcome outcome = outcome_of(reserve);
  EXPECT_EQ(outcome.status, Status::draining);
  EXPECT_TRUE(says(outcome.reason, "measure at least 201 steps, or let --extend-window do it"));
}

TEST(RunOutcome, NotesAReserveThatIsLargeButDidNotFallExceptForACeiling) {
  WindowReserve reserve{.counted = {.consumed = 10, .start = 4, .end = 4}, .start = 4, .end = 4};
  EXPECT_EQ(outcome_of(reserve).status, Status::ok);
  EXPECT_TRUE(says(outcome_of(reserve).note, "4 were ready"));
  reserve.costs_something = false;
  EXPECT_EQ(outcome_of(reserve).note, "");
}

TEST(RunOutcome, TrustsTheProducersTimesOverHalfTheWindowOnly) {
  const ReserveUse counted{.consumed = 100, .start = 10, .end = 10};
  EXPECT_FALSE(use_at_producer(counted, 10, 20, 4));
  WindowReserve reserve{.counted = counted, .at_producer = use_at_producer(counted, 10, 20, 5)};
  ASSERT_TRUE(reserve.at_producer);
  EXPECT_EQ(reserve.at_producer->consumed, 50);
  const Outcome outcome = outcome_of(reserve);
  EXPECT_EQ(outcome.status, Status::draining);
  EXPECT_TRUE(says(outcome.reason, "the producer sent 20 batches while 50"));
}

/// Two legs of two steps each on two ranks, which exchange before and between them, too.
TEST(RunWindow, CountsTheExchangeInItsLegs) {
  RunWindow window;
  StepLog log(0, 2);
  for (const std::int64_t begin : {10, 30}) {
    WindowLeg& leg = window.legs.emplace_back();
    leg.log = &log;
    leg.begin.exchange = {.steps = 2 * begin, .busy = begin * 500ms, .exposed = begin * 70ms};
    leg.end.exchange = {.steps = 2 * begin + 4,
                        .busy = leg.begin.exchange.busy + 12ms,
                        .exposed = leg.begin.exchange.exposed + 8ms};
  }
  RunResult result;
  summarise(window, RunConfig(), result);
  EXPECT_NEAR(result.facts.at("exchange_ms_per_step"), 3, 1e-9);
  EXPECT_NEAR(result.facts.at("exchange_exposed_ms_per_step"), 2, 1e-9);
}

}  // namespace
}  // namespace penstock
