// SPDX-License-Identifier: Apache-2.0
#include "bench/record/epoch_edges.h"

#include <gtest/gtest.h>

#include "bench/analysis/cost.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

/// Steps of 40 ms, and `at_edge` at the given ones.
RunResult make_run(std::size_t steps, std::vector<std::int64_t> begins, double at_edge) {
  RunResult run;
  run.step_ms.assign(steps, 40);
  for (const std::int64_t begin : begins) run.step_ms[static_cast<std::size_t>(begin)] = at_edge;
  run.device_idle_ms = run.starved_ms = run.step_ms;
  run.copy_exposed_ms.assign(steps, 0);
  run.late_ms.assign(steps, 0);
  run.epoch_begins = std::move(begins);
  run.images_per_step = 32;
  run.facts["loader_first_batch_s"] = 3;
  for (const double ms : run.step_ms) run.window_s += ms / 1e3;
  run.img_per_s = 32 * static_cast<double>(steps) / run.window_s;
  return run;
}

EpochEdges edges_of(const RunResult& run) {
  const RunResult* const one = &run;
  return epoch_edges(std::span(&one, 1));
}

TEST(EpochEdges, AreKeptApartFromSteadySteps) {
  RunResult run = make_run(40, {7, 17, 27, 37}, 1040);
  run.facts["loader_steps_per_epoch"] = 10;
  const EpochEdges edges = edges_of(run);
  EXPECT_EQ(edges.seen, 4U);
  EXPECT_EQ(edges.steps_per_epoch, 10);
  EXPECT_NEAR(edges.steady_ms, 40, 1e-9);
  EXPECT_NEAR(edges.longer_ms, 1000, 1e-9);
  EXPECT_NEAR(edges.step_ms(), 140, 1e-9);
  EXPECT_FALSE(edges.misses_edges());
}

/// One edge in 15 steps counts as one in an epoch of 1,000.
TEST(EpochEdges, CountInTheProportionOfAnEpoch) {
  RunResult run = make_run(15, {12}, 10'040);
  run.facts["loader_steps_per_epoch"] = 1000;
  const analysis::SteadyRun steady = analysis::steady_state(run);
  EXPECT_NEAR(steady.step_ms, 50, 1e-9);
  EXPECT_NEAR(steady.kept_up_ms, 50, 1e-9);
  EXPECT_NEAR(steady.starved_ms, 50, 1e-9);
  EXPECT_LE(steady.steps, 14U);
  const std::string text = describe_edges(run);
  EXPECT_TRUE(says(text, "an epoch of the loader has 1000 steps"));
  EXPECT_TRUE(says(text, "takes 10000 ms longer"));
  EXPECT_TRUE(says(text, "640 img/s over whole epochs, 800 without"));
}

TEST(EpochEdges, ALengthThatIsNotStatedIsSeen) {
  EXPECT_EQ(edges_of(make_run(40, {3, 13, 23}, 100)).steps_per_epoch, 10);
  const RunResult once = make_run(40, {3}, 100);
  EXPECT_EQ(edges_of(once).steps_per_epoch, 0);
  EXPECT_EQ(without_edges(once, once.step_ms).size(), 40U) << "all steps count alike";
}

TEST(EpochEdges, EdgesOutsideAllWindowsAreNamed) {
  RunResult run = make_run(20, {}, 0);
  run.facts["loader_steps_per_epoch"] = 5004;
  EXPECT_TRUE(edges_of(run).misses_edges());
  const std::string text = describe_edges(run);
  EXPECT_TRUE(says(text, "reached no end of one"));
  EXPECT_TRUE(says(text, "first batch came after 3.0 s"));
  run.facts.clear();
  EXPECT_EQ(describe_edges(run), "") << "no loader";
}

}  // namespace
}  // namespace penstock
