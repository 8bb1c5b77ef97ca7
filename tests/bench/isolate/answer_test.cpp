// SPDX-License-Identifier: Apache-2.0
// The answer of `penstock isolate` as data: what a program reads in place of sentences.
#include "bench/isolate/answer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "bench/isolate/isolation_json.h"
#include "dataflow/options.h"
#include "tests/bench/isolate/isolation_fixture.h"

namespace penstock::isolate {
namespace {

Isolation with_recommendations() {
  Isolation found = make_isolation();
  found.verification.reset();
  const RunConfig& config = found.measurement.coupled().config;
  found.predictions.recommendations = {{.text = "--feeder-threads 4: about 3500 img/s",
                                        .change = "--feeder-threads 4",
                                        .config = {},
                                        .img_per_s = 3500,
                                        .settings = {change_of(config, "feeder_threads", "4")}},
                                       {.text = "a cheaper decode stage",
                                        .change = {},
                                        .config = {},
                                        .img_per_s = 3571,
                                        .is_bound = true}};
  return found;
}

TEST(Answer, ACauseHasAKindAPlaceAndAShareOfTheCost) {
  const Cause cause = cause_of(make_isolation());
  EXPECT_EQ(cause.kind, CauseKind::stage);
  EXPECT_EQ(cause.where, "decode");
  EXPECT_NEAR(cause.share_percent, 100 * 24.9 / 27.55, 1e-9);
}

TEST(Answer, AWaitOfTheLoopIsTheCauseRatherThanAStage) {
  Isolation found = make_isolation();
  found.waits.cause = WaitCause::edges;
  found.waits.edge_longer_ms = 551;
  found.waits.steps_per_epoch = 40;
  EXPECT_EQ(cause_of(found).kind, CauseKind::edges);
  EXPECT_NEAR(cause_of(found).share_percent, 50, 0.1);
}

TEST(Answer, ACandidateHasASettingItsPresentValueAndAGainWithAnInterval) {
  const Answer answer = answer_of(with_recommendations());
  ASSERT_EQ(answer.candidates.size(), 2U);
  const Candidate& first = answer.candidates[0];
  ASSERT_EQ(first.settings.size(), 1U);
  EXPECT_EQ(first.settings[0].kind, SettingKind::flag);
  EXPECT_EQ(first.settings[0].name, "feeder_threads");
  EXPECT_EQ(first.settings[0].value, "4");
  EXPECT_FALSE(first.settings[0].now.empty());
  EXPECT_EQ(first.basis, Basis::predicted);
  EXPECT_NEAR(first.gain_percent.value, 100 * (3500 / 2019.2 - 1), 1e-9);
  EXPECT_LT(first.gain_percent.low, first.gain_percent.value);
  EXPECT_GE(first.gain_percent.high, first.gain_percent.value);
  EXPECT_EQ(answer.candidates[1].basis, Basis::at_most);
  EXPECT_TRUE(answer.candidates[1].settings.empty());
  EXPECT_EQ(answer.next, NextStep::try_setting);
  EXPECT_FALSE(answer.done);
}

TEST(Answer, ATrialReplacesThePredictionAndRulesOutWhatDoesNotHelp) {
  Isolation found = with_recommendations();
  found.verification = Verification{.change = "--feeder-threads 4",
                                    .predicted_img_per_s = 3500,
                                    .achieved_img_per_s = {3000, 2900, 3100, 5},
                                    .error_percent = 16,
                                    .agrees = false};
  EXPECT_EQ(answer_of(found).candidates[0].basis, Basis::confirmed);
  EXPECT_NEAR(answer_of(found).candidates[0].gain_percent.low, 100 * (2900 / 2019.2 - 1), 1e-9);
  found.verification->achieved_img_per_s = {3000, 1500, 4500, 5};
  EXPECT_EQ(answer_of(found).candidates[0].basis, Basis::measured) << "it may be no gain";
  found.verification->achieved_img_per_s = {2000, 1980, 2030, 5};
  const Answer answer = answer_of(found);
  EXPECT_EQ(answer.candidates.size(), 1U);
  EXPECT_EQ(answer.next, NextStep::change_code) << "only work on the code is left";
  EXPECT_EQ(answer.ruled_out.front().name, "--feeder-threads 4");
  EXPECT_LT(answer.ruled_out.front().figure.high, answer.ruled_out.front().limit);
}

TEST(Answer, MeasuredSettingsAreCandidatesOrRuledOut) {
  Isolation found = make_isolation();
  found.verification.reset();
  found.predictions.recommendations.clear();
  RunConfig config;
  config.fake_location =
      component_text(parse_component("python:loader=train.py:make,args='num_workers=2'"));
  found.measurement.settings = settings_of("num_workers=2,4,8", config);
  found.variation = VariationFinding{
      .settings = {{"", "num_workers=2", statistics::Estimate{2019.2, 2019.2, 2019.2, 5}, ""},
                   {"num_workers=4", "", statistics::Estimate{2500, 2450, 2550, 5}, ""},
                   {"num_workers=8", "", statistics::Estimate{1900, 1850, 1950, 5}, ""}},
      .best = 1,
      .blocks = 5};
  const Answer answer = answer_of(found);
  ASSERT_EQ(answer.candidates.size(), 1U);
  const SettingChange& setting = answer.candidates[0].settings.at(0);
  EXPECT_EQ(setting.kind, SettingKind::argument);
  EXPECT_EQ(setting.name + setting.value + setting.now, "num_workers42");
  EXPECT_EQ(answer.candidates[0].basis, Basis::measured);
  EXPECT_EQ(answer.ruled_out.front().kind, RuledOut::Kind::setting);
  EXPECT_EQ(answer.ruled_out.front().name, "num_workers=8");
}

TEST(Answer, StagesWithRoomAndPartsWithinTheMarginAreRuledOut) {
  Isolation found = make_isolation();
  found.cost->split.transfer_ms = {0.1, 0.05, 0.2, 5};
  const Answer answer = answer_of(found);
  std::string names;
  for (const RuledOut& each : answer.ruled_out) names += each.name + " ";
  EXPECT_EQ(names, "transfer read copy ");
}

TEST(Answer, WithinTheMarginThereIsNothingLeftToDo) {
  Isolation found = with_recommendations();
  found.cost->verdict = statistics::Verdict::equal;
  Answer answer = answer_of(found);
  EXPECT_TRUE(answer.done);
  EXPECT_EQ(answer.next, NextStep::stop);
  EXPECT_EQ(answer.cause.kind, CauseKind::none);
  found.cost->verdict = statistics::Verdict::undecided;
  answer = answer_of(found);
  EXPECT_FALSE(answer.done);
  EXPECT_EQ(answer.next, NextStep::measure_again);
  found.cost.reset();
  EXPECT_FALSE(answer_of(found).done);
}

TEST(Answer, TheRecordHasIt) {
  const nlohmann::json json = nlohmann::json::parse(to_json(with_recommendations()).dump());
  EXPECT_EQ(json["answer"]["cause"]["kind"], "stage");
  EXPECT_EQ(json["answer"]["candidates"][0]["settings"][0]["name"], "feeder_threads");
  EXPECT_EQ(json["answer"]["next"], "try_setting");
}

}  // namespace
}  // namespace penstock::isolate
