// SPDX-License-Identifier: Apache-2.0
// Reports of `penstock isolate` as text and as JSON.
#include "bench/isolate/isolation_report.h"

#include <gtest/gtest.h>

#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "bench/isolate/isolation_json.h"
#include "bench/isolate/verdict.h"
#include "bench/record/report_text.h"
#include "tests/bench/isolate/isolation_fixture.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

std::string text_of(const isolate::Isolation& found) {
  std::ostringstream text;
  isolate::write_isolation_text(found, text);
  return text.str();
}

TEST(IsolationText, TheVerdictComesFirstAndTheCommandLast) {
  const isolate::Isolation found = make_isolation();
  const std::string text = text_of(found);
  EXPECT_EQ(text.find(found.verdict.front().substr(0, 60)), 0U) << text;
  const std::size_t command = text.find("Again: penstock isolate");
  ASSERT_NE(command, std::string::npos);
  EXPECT_EQ(text.find('\n', command), text.size() - 1);
}

TEST(IsolationText, ALoaderIsCalledByItsName) {
  RunConfig config;
  config.fake_location = "python:loader='/home/me/project/train.py:make_loader',args='workers=2'";
  EXPECT_EQ(feeder_label(config), "train.py:make_loader");
}

TEST(IsolationText, EveryFindingHasItsTable) {
  const std::string text = text_of(make_isolation());
  for (const char* part :
       {"ceiling (gpu)", "supply (queue alone)", "starvation", "residual", "decode threads",
        "<- bottleneck", "host ring", "feeder threads", "--prefetch 6", "as measured",
        "over ZeroMQ (a branch)", "cold files: not measured", "What would help",
        "Doubts:", "left out", "0.11 %"}) {
    EXPECT_TRUE(says(text, part)) << part << "\n" << text;
  }
}

TEST(IsolationText, TheSentencesBelowTheHeadlineNameTheLoopAndTheEdgesOfEpochs) {
  isolate::Isolation found = make_isolation();
  isolate::IsolatePlan plan;
  plan.has_loader = true;
  plan.config.loop = "async";
  found.epochs = {.steps_per_epoch = 10, .seen = 4, .steady_ms = 40, .longer_ms = 1020};
  const auto verdict = [&] { return join(isolate::verdict_of(found, plan)); };
  EXPECT_TRUE(says(verdict(), "the first one of each epoch of 10 steps 1020 ms longer"));
  found.epochs = {.steps_per_epoch = 5004, .first_batch_s = 10.2};
  EXPECT_TRUE(says(verdict(), "The budget reached no end of an epoch of 5004 steps"));
  EXPECT_TRUE(says(verdict(), "the first batch came after 10.2 s"));
  plan.config.loop.clear();
  EXPECT_FALSE(says(verdict(), "training loop"));
}

TEST(IsolationText, ALoopThatWaitsIsNamedIfItCostsAnotherShare) {
  isolate::Isolation found = make_isolation();
  isolate::IsolatePlan plan;
  const auto verdict = [&] { return join(isolate::verdict_of(found, plan)); };
  EXPECT_FALSE(says(verdict(), "(--loop sync)"));
  found.cost_if_waiting = found.cost;
  EXPECT_FALSE(says(verdict(), "(--loop sync)"));
  found.cost_if_waiting->percent.value += 6;
  found.cost_if_waiting->coupled_img_per_s.value = 1500;
  found.cost_if_waiting->ceiling_img_per_s.value = 3000;
  EXPECT_TRUE(says(verdict(), "(--loop sync)"));
  EXPECT_TRUE(says(verdict(), ": 1500 of 3000 img/s are left"));
}

TEST(IsolationText, ATableSaysWhatDevicesOfOtherRatesWouldTrain) {
  isolate::Isolation found = make_isolation();
  const auto rows_of = [&](double value, double low, double high, double coupled = 0.97) {
    found.supply_img_per_s = statistics::Estimate{value, low, high, 5};
    found.cost->coupled_img_per_s.value = coupled * value;
    std::istringstream lines(text_of(found));
    std::vector<std::vector<std::string>> rows;
    bool inside = false;
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      const std::vector<std::string> row{std::istream_iterator<std::string>(words), {}};
      if (inside && row.size() < 4) break;
      if (inside && row.front().find_first_not_of("0123456789") == std::string::npos) {
        rows.push_back(row);
      }
      inside = inside || says(line, "if the device trains img/s");
    }
    return rows;
  };
  using Rows = std::vector<std::vector<std::string>>;
  EXPECT_EQ(rows_of(3200, 3100, 3300), (Rows{{"1000", "1000", "0", "the", "device"},
                                             {"2000", "2000", "0", "the", "device"},
                                             {"3571", "3104", "44", "measured", "here"},
                                             {"5000", "3200", "36", "the", "feeder"},
                                             {"10000", "3200", "68", "the", "feeder"},
                                             {"20000", "3200", "84", "the", "feeder"}}));
  EXPECT_EQ(rows_of(1000, 990, 1010).at(1), (Rows::value_type{"1000", "1000", "0", "either"}));
  EXPECT_EQ(rows_of(3200, 3100, 3300, 0.6), Rows()) << "it trains less than the feeder supplies";
  found.waits.cause = WaitCause::uneven;
  EXPECT_EQ(rows_of(3200, 3100, 3300), Rows()) << "batches come at the wrong time";
}

TEST(IsolationText, ASentenceIsBrokenBetweenWords) {
  std::istringstream lines(text_of(make_isolation()));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("Again: ")) continue;
    EXPECT_LE(line.size(), 110U) << line;
  }
}

TEST(IsolationText, WithoutAnAnswerThereAreNoTables) {
  isolate::Isolation found = make_isolation();
  found.cost.reset();
  found.diagnosis.stages.clear();
  found.verdict = {"There is no answer: the run failed."};
  const std::string text = text_of(found);
  EXPECT_EQ(text.find("There is no answer"), 0U);
  EXPECT_FALSE(says(text, "starvation"));
}

TEST(IsolationText, RungsWithTheSameReasonShareALine) {
  isolate::Isolation found = make_isolation();
  for (isolate::RungFinding& rung : found.ladder) rung.unavailable = "the ladder's budget ended";
  const std::string text = text_of(found);
  const std::size_t at = text.find("not measured: the ladder's budget ended.");
  ASSERT_NE(at, std::string::npos) << text;
  EXPECT_EQ(text.find("not measured", at + 1), std::string::npos) << text;
  EXPECT_FALSE(says(text, "added ms")) << "a table without rows";
}

TEST(IsolationText, EndsThatAreNotKnownAreQuestionMarks) {
  const double infinite = std::numeric_limits<double>::infinity();
  EXPECT_EQ(format_estimate({43.21, -infinite, infinite, 1}, 1), "43.2 (interval unknown)");
  EXPECT_EQ(format_estimate({43.21, 41.8, 44.5, 5}, 1), "43.2 (41.8 to 44.5)");
  EXPECT_EQ(format_estimate({43.21, 41.8, 44.5, 3, true}, 1), "43.2 (41.8..44.5)");
  EXPECT_EQ(format_estimate({25, 25, 25, 1, true}, 1), "25.0 (once)");
}

TEST(IsolationJson, HasFindingsAndRawSamples) {
  const nlohmann::json json = nlohmann::json::parse(isolate::to_json(make_isolation()).dump());
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["kind"], "isolation");
  EXPECT_EQ(json["cost"]["verdict"], "slower");
  EXPECT_DOUBLE_EQ(json["cost"]["split"]["residual_ms"], 0.15);
  EXPECT_EQ(json["bottleneck"], 1);
  EXPECT_EQ(json["supply_row"], nullptr);
  EXPECT_EQ(json["cores_per_device"]["whole"], 4);
  EXPECT_EQ(json["ladder"].size(), 9U);
  EXPECT_EQ(json["noise"].size(), 5U);
  EXPECT_FALSE(json["sweep"]["runs"][1]["repetitions"][0]["step_ms"].empty());
}

TEST(IsolationJson, InfiniteEndsAreNull) {
  isolate::Isolation found = make_isolation();
  found.cost->percent.high = std::numeric_limits<double>::infinity();
  const nlohmann::json json = nlohmann::json::parse(isolate::to_json(found).dump());
  EXPECT_EQ(json["cost"]["percent"]["high"], nullptr);
}

}  // namespace
}  // namespace penstock
