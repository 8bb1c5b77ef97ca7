// SPDX-License-Identifier: Apache-2.0
// The pages of sweeps and of one feeder's cost: their contents, in the right order and without
// repetition.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "bench/isolate/isolation_report.h"
#include "bench/record/report_text.h"
#include "bench/report/pages/sweep_costs.h"
#include "bench/report/pages/sweep_page.h"
#include "tests/bench/isolate/isolation_fixture.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

/// Replaces no-break spaces between numbers and units by spaces.
std::string with_blanks(std::string page) {
  const std::string no_break = "\xC2\xA0";
  for (std::size_t at = 0; (at = page.find(no_break, at)) != std::string::npos;) {
    page.replace(at, no_break.size(), 1, ' ');
  }
  return page;
}

std::string page_of(const isolate::Isolation& isolation) {
  std::ostringstream page;
  isolate::write_isolation_page(isolation, page);
  return with_blanks(page.str());
}

std::string page_of(const SweepResult& sweep) {
  std::ostringstream page;
  report::write_sweep_page(sweep, {}, page);
  return with_blanks(page.str());
}

std::size_t count(const std::string& text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

/// Are the parts present in this order?
testing::AssertionResult in_order(const std::string& text, const std::vector<std::string>& parts) {
  std::size_t at = 0;
  for (const std::string& part : parts) {
    const std::size_t found = text.find(part, at);
    if (found == std::string::npos) {
      return testing::AssertionFailure() << "'" << part << "' is missing, or stands too early";
    }
    at = found;
  }
  return testing::AssertionSuccess();
}

SweepResult make_sweep(std::size_t rounds = 5) {
  SweepResult sweep;
  sweep.environment = make_environment();
  sweep.command = "penstock sweep --data-dir '<script>alert(1)</script>'";
  sweep.repetitions = 5;
  sweep.varied = {&find_config_key("fake_location")};
  sweep.rows = {make_long_row("gpu", 0, true), make_long_row("host", 0.02),
                make_long_row("zmq-consume", 4.2), make_long_row("queue", 27.55)};
  for (const std::size_t row : {2U, 3U}) {
    sweep.rows[row].repetitions[0].result.notes = {"a note about <b>data</b>"};
  }
  for (Row& row : sweep.rows) row.repetitions.resize(rounds);
  summarise(sweep);
  return sweep;
}

TEST(SweepCosts, AreMeansOverRoundsWithIntervalsAndTheWorstFirst) {
  const SweepResult sweep = make_sweep();
  const std::vector<const Row*> rows = rows_by_cost(sweep);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0]->config.fake_location, "queue");
  EXPECT_EQ(rows[1]->config.fake_location, "zmq-consume");
  const statistics::CostEstimate& worst = *rows[0]->input_cost;
  EXPECT_NEAR(worst.percent.value, 100 * 27.55 / (27.55 + 35.84), 0.1);
  EXPECT_LT(worst.percent.low, worst.percent.value);
  EXPECT_GT(worst.percent.high, worst.percent.value);
  EXPECT_FALSE(worst.percent.is_spread);
  EXPECT_NEAR(worst.ms_per_step.value, 27.55, 1e-6);
  EXPECT_EQ(worst.rounds.size(), 5U);
  EXPECT_EQ(worst.verdict, statistics::Verdict::slower);
  EXPECT_EQ(rows[2]->input_cost->verdict, statistics::Verdict::equal);
}

TEST(SweepCosts, HaveNoVerdictWithTwoRounds) {
  const SweepResult sweep = make_sweep(2);
  const Row& worst = *rows_by_cost(sweep).front();
  EXPECT_EQ(worst.input_cost->verdict, statistics::Verdict::undecided);
  EXPECT_EQ(cost_sentence(sweep, worst),
            "queue: 41.9 to 42.7 % lost in 2 rounds; a verdict takes 3 or more.");
}

TEST(SweepCosts, AreNotSplitWhereRunsDidNotRecordWhatTheDeviceWaitedFor) {
  SweepResult sweep = make_sweep();
  const std::vector<report::SplitBar> splits = report::splits_of(sweep, rows_by_cost(sweep));
  ASSERT_EQ(splits.size(), 3U);
  const report::SplitBar& worst = splits.front();
  EXPECT_GT(worst.starvation_ms.value, worst.transfer_ms.value);
  EXPECT_NEAR(worst.starvation_ms.value + worst.transfer_ms.value + worst.interference_ms.value +
                  worst.residual_ms,
              worst.total_ms.value, 1e-9);
  for (Row& row : sweep.rows) {
    for (Repetition& repetition : row.repetitions) repetition.result.starved_ms.clear();
  }
  EXPECT_TRUE(report::splits_of(sweep, rows_by_cost(sweep)).empty());
}

TEST(SweepPage, NamesTheOnlyFeederThatFallsShort) {
  SweepResult sweep = make_sweep();
  std::erase_if(sweep.rows,
                [](const Row& row) { return row.config.fake_location == "zmq-consume"; });
  EXPECT_TRUE(says(report::answer_of(sweep).front(), "img/s (57 %) with queue."));
}

TEST(SweepPage, SaysTheAnswerFirstThenOneSentenceForEachRow) {
  const std::string page = page_of(make_sweep());
  EXPECT_TRUE(in_order(
      page, {"One device (emulated) trains 3,571 img/s; JPEG decoding on these 2 cores supplies",
             "img/s (57 %) with queue.",
             "nothing measurable",
             "The pipeline, and what each stage could do",
             "bottleneck",
             "<details class=\"part\"><summary><h2>Supply against demand",
             "<h2>Each feeder",
             "queue loses 43.5 % (",
             "of what the device could train: 27.55 ms of each step.",
             "zmq-consume loses 10.5 % (",
             "host keeps up",
             "<h2>What is lost",
             "<h2>From which device rate on",
             "<h2>What the cost consists of",
             "<h2>Every step",
             "<h2>Its queues",
             "<h2>All rows",
             "<h2>Parts of a step",
             "<h2>Stages",
             "<h2>To paste",
             "queue: 43.5 % lost (",
             "<h2>Each repetition",
             "<h2>Where it ran",
             "<h2>To measure it again"}));
}

TEST(SweepPage, DrawsTheMemoryOfTheRunThatItShows) {
  SweepResult sweep = make_sweep();
  EXPECT_EQ(count(page_of(sweep), "<h2>Its memory"), 0U) << "not recorded";
  for (Row& row : sweep.rows) {
    for (Repetition& repetition : row.repetitions) {
      repetition.result.memory = {{"process", 512, {256, 512}}, {"device 0", 2048, {2048}}};
    }
  }
  EXPECT_TRUE(in_order(page_of(sweep), {"<h2>Its memory", "at most 512.0 MiB", "at most 2,048 MiB",
                                        "<h2>All rows", "process MiB, peak", "512"}));
}

TEST(SweepPage, DoesNotRepeatItsAnswerUnderEachFeederIfNoRowHasAVerdict) {
  const std::string page = page_of(make_sweep(2));
  EXPECT_EQ(count(page, "queue: 41.9 to 42.7 % lost in 2 rounds"), 1U);
  EXPECT_EQ(count(page, "<h2>Each feeder"), 0U);
}

TEST(SweepPage, SaysANoteOfSeveralRowsOnce) {
  const std::string page = page_of(make_sweep());
  EXPECT_EQ(count(page, "a note about"), 1U);
  EXPECT_TRUE(says(page, "zmq-consume; queue: a note about &lt;b&gt;data&lt;/b&gt;."));
}

TEST(SweepPage, LetsNoTextBecomeMarkup) {
  SweepResult sweep = make_sweep();
  sweep.rows[3].config.fake_location = "<script>alert(2)</script>";
  for (Repetition& repetition : sweep.rows[3].repetitions) {
    repetition.result.queues[0].name = "</svg><script>";
    repetition.result.stages[0].name = "<img src=x onerror=alert(3)>";
  }
  const std::string page = page_of(sweep);
  for (const char* raw : {"<script", "<img", "</svg><"}) {
    EXPECT_EQ(count(page, raw), 0U) << raw;
  }
}

TEST(SweepPage, DoesWithoutRowsAndWithoutRuns) {
  EXPECT_TRUE(says(page_of(SweepResult{}), "No feeder was measured"));
  const std::string page = page_of(make_sweep(0));
  EXPECT_EQ(count(page, "<svg"), 0U);
  EXPECT_TRUE(says(page, "no cost is known, not measured."));
}

TEST(SweepFigures, AreFilesAndReplaceTheFiguresOfEarlierRuns) {
  const TempFolder folder;
  report::write_sweep_figures(make_sweep(), folder.path());
  for (const char* name : {"pipeline.svg", "supply.svg", "bottleneck.svg", "cost.svg", "split.svg",
                           "steps.svg", "queues.svg"}) {
    EXPECT_TRUE(read_text(folder / name).starts_with("<svg xmlns=")) << name;
  }
  write_text(folder / "mine.svg", "kept");
  report::write_sweep_figures(make_sweep(0), folder.path());
  EXPECT_EQ(files_below(folder.path()).size(), 1U);
}

TEST(IsolationPage, SaysTheVerdictFirstThenShowsItThenWhatHelpsThenWhy) {
  const isolate::Isolation isolation = make_isolation();
  EXPECT_TRUE(
      in_order(page_of(isolation), {"The queue feeder costs 43 %",
                                    "The pipeline, and what each stage could do",
                                    "give the feeder 4 cores",
                                    "JPEG decoding is the bottleneck",
                                    "3,571 img/s",
                                    "within 1 % of the ceiling",
                                    "The supply curve was measured to 2 threads",
                                    "<h2>Supply against demand",
                                    "2,031 of 3,571 img/s (57 %)",
                                    "<h2>From which device rate on",
                                    "more than 2,031 img/s (2,003 to 2,059)",
                                    "<h2>From the device alone",
                                    "<h2>What the cost consists of",
                                    "<h2>How many cores would do",
                                    "4 cores needed",
                                    "<h2>Every step",
                                    "<h2>The queues",
                                    "<h2>The ladder",
                                    "cold files",
                                    "<h2>Stages",
                                    "bottleneck",
                                    "<h2>To paste",
                                    "queue: 43.5 % lost (42.6 to 44.3), 2 cores, 2026-01-02",
                                    "<h2>Each repetition",
                                    "<h2>Where it ran",
                                    "<h2>To measure it again",
                                    "<span>penstock </span>"}));
}

TEST(IsolationPage, ShowsWhatRungsLackAndThatSomeTakeLess) {
  const std::string page = page_of(make_isolation());
  EXPECT_TRUE(says(page, "cold files: not measured: pages stay resident"));
  EXPECT_TRUE(says(page, "class=\"gain\""));
}

TEST(IsolationPage, HasNoNan) {
  isolate::Isolation isolation = make_isolation();
  isolation.cost->split.total_ms.high = std::numeric_limits<double>::infinity();
  isolation.cost->split.starvation_ms.low = std::numeric_limits<double>::quiet_NaN();
  isolation.predictions.supply_curve = {{1, {1050}}};
  const std::string page = page_of(isolation);
  for (const char* none : {"nan", "=\"inf", "=\"-inf", ",inf", ",-inf"}) {
    for (std::size_t at = page.find(none); at != std::string::npos; at = page.find(none, at + 1)) {
      ADD_FAILURE() << page.substr(at - std::min<std::size_t>(at, 40), 80);
    }
  }
}

TEST(IsolationFigures, AreFiles) {
  const TempFolder folder;
  isolate::write_isolation_figures(make_isolation(), folder / "figures");
  const auto files = files_below(folder / "figures");
  ASSERT_EQ(files.size(), 8U);
  EXPECT_TRUE(files.contains("supply-demand.svg"));
}

}  // namespace
}  // namespace penstock
