// SPDX-License-Identifier: Apache-2.0
// Projections from a record: values taken from it, derived values, and projected rows.
#include "bench/scaling/projection/projection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/scaling/projection/check.h"
#include "bench/scaling/projection/topology.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "tests/support/thrown_by.h"
#include "trainer/model.h"

namespace penstock {
namespace {

RunResult record() {
  RunResult run;
  run.config.model = "resnet50";
  run.config.device = "cpu";
  run.config.batch_size = 32;
  run.config.image_size = 224;
  run.config.classes = 1000;
  run.config.num_processes = 1;
  run.img_per_s = 320;
  run.step_ms = {98, 102, 100};
  run.device_idle_ms = {0, 6, 6};
  run.starved_ms = {0, 0, 0};
  run.facts["exchange_exposed_ms_per_step"] = 6;
  return run;
}

TEST(MeasuredStep, WaitingIsTakenOff) {
  const scaling::MeasuredStep step = scaling::measured_step(record());
  EXPECT_NEAR(step.compute_ms(), 101 - 6 - 6, 1e-9);  // without the first step
  EXPECT_NEAR(step.jitter_ms, 2, 1e-9);
  EXPECT_TRUE(mentions(step.notes, "taken off the record's steps of 101.00 ms: 6.00 ms"));
  EXPECT_FALSE(step.feeder_img_per_s.has_value());
}

TEST(MeasuredStep, BucketsThatWereMeasuredAreTaken) {
  RunResult run = record();
  run.buckets = {{.mib = 1, .lead_ms = 50, .exchange_ms = 2},
                 {.mib = 25, .lead_ms = 0, .exchange_ms = 9}};
  const scaling::MeasuredStep step = scaling::measured_step(run);
  ASSERT_EQ(step.buckets.size(), 2U);
  EXPECT_DOUBLE_EQ(step.buckets[1].bytes, 25 * 0x1p20);
  EXPECT_DOUBLE_EQ(step.buckets[0].lead_ms, 50);
  EXPECT_TRUE(mentions(step.notes, "measured, 2 of them"));
  EXPECT_FALSE(mentions(step.notes, "bus bandwidth"));  // one device has no bus
  run.config.num_gpus = 2;                              // 26 MiB in 11 ms
  EXPECT_TRUE(mentions(scaling::measured_step(run).notes,
                       "over 2 devices reached a bus bandwidth of 2.48 GB/s"));
}

TEST(MeasuredStep, UnmeasuredBucketsAreDerivedAndReported) {
  const scaling::MeasuredStep step = scaling::measured_step(record());
  EXPECT_TRUE(mentions(step.notes, "derived from the graph"));
  double bytes = 0;
  for (const scaling::ReadyBucket& bucket : step.buckets) bytes += bucket.bytes;
  EXPECT_DOUBLE_EQ(bytes, 4.0 * 25557032);  // ResNet-50
  // The last layers come first; the first layer is ready when nothing of backward is left.
  EXPECT_TRUE(std::ranges::is_sorted(step.buckets, std::greater(), &scaling::ReadyBucket::lead_ms));
  EXPECT_GT(step.buckets.front().lead_ms, 0.9 * step.backward_ms);
  EXPECT_DOUBLE_EQ(step.buckets.back().lead_ms, 0);
}

TEST(MeasuredStep, BackwardIsTwoThirdsButForTheFirstLayersInputs) {
  const ModelEntry& model = find_entry(model_table(), "resnet50");
  const double share = scaling::forward_share(build_graph(model, model.image, model.classes));
  EXPECT_GT(share, 1.0 / 3);
  EXPECT_LT(share, 0.35);
}

TEST(MeasuredStep, AFeederThatWasTheLimitIsOneForEachHost) {
  RunResult run = record();
  run.starved_ms = {30, 30, 30};
  run.sustained_img_per_s = 200;
  run.ranks = {{0, "a", 100, 1}, {1, "b", 100, 1}};
  EXPECT_DOUBLE_EQ(scaling::measured_step(run).feeder_img_per_s.value(), 100);
}

TEST(MeasuredStep, RunsThatDidNotEndWellAreRefused) {
  RunResult run = record();
  run.status = Status::failed;
  EXPECT_THROW(scaling::measured_step(run), ConfigError);
  run = record();
  run.step_ms.clear();
  EXPECT_THROW(scaling::measured_step(run), ConfigError);
  run = record();
  run.config.model = "null";
  EXPECT_THROW(scaling::measured_step(run), ConfigError);
  EXPECT_THROW(scaling::read_record("/nowhere/record.json"), ConfigError);
}

/// 10 ms forward, 20 ms backward, 30 images, and 100 MB that are ready when backward ends.
scaling::MeasuredStep simple_step() {
  scaling::MeasuredStep step;
  step.model = "simple";
  step.batch = 30;
  step.forward_ms = 10;
  step.backward_ms = 20;
  step.img_per_s = 1000;
  step.buckets = {{100e6, 0}};
  return step;
}

scaling::ProjectionPlan simple_plan(
    const std::string& topology = "devices=1,link=10,efficiency=1,latency_us=0") {
  scaling::ProjectionPlan plan;
  plan.topology = scaling::parse_topology(topology);
  plan.ranks = {1, 2};
  plan.exchanges = {&scaling::exchange_models().front()};
  return plan;
}

TEST(Projection, ExchangeThatShowsMakesAStepLonger) {
  // A ring of 2 sends 100 MB once over 10 GB/s: 10 ms.
  const std::vector<scaling::ProjectedRow> rows = scaling::project(simple_step(), simple_plan());
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_NEAR(rows[0].img_per_s, 1000, 1e-9);
  EXPECT_EQ(rows[0].limit, scaling::Limit::compute);
  EXPECT_NEAR(rows[1].exposed_ms, 10, 1e-9);
  EXPECT_NEAR(rows[1].step_ms, 40, 1e-9);
  EXPECT_NEAR(rows[1].img_per_s, 1500, 1e-9);
  EXPECT_NEAR(rows[1].efficiency, 0.75, 1e-9);
  EXPECT_EQ(rows[1].limit, scaling::Limit::exchange);
}

TEST(Projection, HalfAsManyBytesTakeHalfAsLong) {
  const auto rows = scaling::project(
      simple_step(), simple_plan("devices=1,link=10,efficiency=1,latency_us=0,bytes=2"));
  EXPECT_NEAR(rows[1].exposed_ms, 5, 1e-9);
}

TEST(Projection, TheClosedFormHidesAShare) {
  scaling::ProjectionPlan plan = simple_plan();
  plan.hidden_share = 0.2;  // of 30 ms
  EXPECT_NEAR(scaling::project(simple_step(), plan)[1].exposed_ms, 4, 1e-9);
}

TEST(Projection, BackwardThatSlowsDownGivesExchangeMoreTime) {
  scaling::MeasuredStep step = simple_step();
  step.buckets = {{100e6, 10}};
  const auto rows = scaling::project(
      step, simple_plan("devices=1,link=5,efficiency=1,latency_us=0,slowdown=0.1"));
  EXPECT_NEAR(rows[0].step_ms, 30, 1e-9);
  EXPECT_NEAR(rows[1].exposed_ms, 20 - 11, 1e-9);
  EXPECT_NEAR(rows[1].step_ms, 10 + 22 + 9, 1e-9);
}

TEST(Projection, StragglersCostByTheirNumberOrAsGiven) {
  scaling::ProjectionPlan plan = simple_plan();
  plan.jitter_ms = 3;
  EXPECT_NEAR(scaling::project(simple_step(), plan)[1].step_ms, 40 + 3 * scaling::slowest_of(2),
              1e-9);
  plan.jitter_ms.reset();
  plan.sigma = 0.8;
  EXPECT_NEAR(scaling::project(simple_step(), plan)[0].step_ms, 30, 1e-9);
  EXPECT_NEAR(scaling::project(simple_step(), plan)[1].step_ms, 50, 1e-9);
}

TEST(Projection, FeedersLimitEachHost) {
  scaling::ProjectionPlan plan =
      simple_plan("devices=2,link=1e6,efficiency=1,latency_us=0,local_latency_us=0,local=1e6");
  plan.ranks = {1, 2, 4, 5};
  plan.feeder_img_per_s = 1200;
  const std::vector<scaling::ProjectedRow> rows = scaling::project(simple_step(), plan);
  EXPECT_NEAR(rows[0].img_per_s, 1000, 1);  // one rank has the host's feeder for itself
  EXPECT_NEAR(rows[1].img_per_s, 1200, 1e-9);
  EXPECT_NEAR(rows[2].img_per_s, 2400, 1e-9);
  EXPECT_NEAR(rows[3].img_per_s, 3000, 1e-9);  // all ranks wait for the full hosts
  EXPECT_EQ(rows[1].limit, scaling::Limit::feeder);
}

TEST(Projection, EveryRowSaysThatItIsProjected) {
  scaling::Projection projection{.command = "penstock project x",
                                 .record = "x",
                                 .step = simple_step(),
                                 .plan = simple_plan(),
                                 .rows = {}};
  projection.rows = scaling::project(projection.step, projection.plan);
  std::istringstream csv(scaling::projection_csv(projection));
  std::string line;
  std::getline(csv, line);  // the header
  for (std::size_t row = 0; row < projection.rows.size(); ++row) {
    ASSERT_TRUE(std::getline(csv, line));
    EXPECT_TRUE(line.starts_with("projected not measured,ring,")) << line;
  }
  const nlohmann::ordered_json json = scaling::to_json(projection);
  for (const auto& row : json["rows"]) EXPECT_EQ(row["status"], scaling::kProjected);
  std::ostringstream text;
  scaling::write_projection_text(projection, text);
  std::size_t marks = 0;
  for (std::size_t at = 0; (at = text.str().find(scaling::kProjected, at)) != std::string::npos;
       ++at)
    ++marks;
  EXPECT_EQ(marks, projection.rows.size());
  EXPECT_TRUE(says(scaling::projection_figure(projection, {}), scaling::kProjected));
}

TEST(Check, FitFindsTheConstantsThatMadeTheFigures) {
  const scaling::FittedConstants made{.ms_per_image = 2.5, .gb_per_s = 0.8, .jitter = 0};
  std::vector<scaling::PublishedPoint> points;
  for (const std::int32_t batch : {16, 64, 256}) {
    scaling::PublishedPoint point{.ranks = 16, .batch = batch, .fitted = batch != 64};
    point.img_per_s = scaling::modelled_img_per_s(point, 100, made);
    points.push_back(point);
  }
  const scaling::PublishedSeries series{.name = "made up",
                                        .source = "here",
                                        .gradient_mb = 100,
                                        .open = {.per_image = true, .bandwidth = true},
                                        .points = points};
  const scaling::CheckedSeries checked = scaling::check(series);
  EXPECT_NEAR(checked.constants.ms_per_image, 2.5, 0.01);
  EXPECT_NEAR(checked.constants.gb_per_s, 0.8, 0.01);
  EXPECT_NEAR(checked.errors[1], 0, 0.01);
}

TEST(Check, JitterIsFoundToo) {
  const scaling::FittedConstants made{.ms_per_image = 4, .gb_per_s = 0, .jitter = 0.05};
  std::vector<scaling::PublishedPoint> points;
  for (const std::int32_t ranks : {1, 8, 64}) {
    scaling::PublishedPoint point{.ranks = ranks, .batch = 64, .fitted = ranks < 64};
    point.img_per_s = scaling::modelled_img_per_s(point, 100, made);
    points.push_back(point);
  }
  const scaling::CheckedSeries checked =
      scaling::check({.name = "made up",
                      .source = "here",
                      .gradient_mb = 100,
                      .open = {.per_image = true, .jitter = true},
                      .points = points});
  EXPECT_NEAR(checked.constants.jitter, 0.05, 0.001);
  EXPECT_NEAR(checked.errors[2], 0, 0.01);
}

TEST(Check, EverySeriesIsFittedToSomePointsAndPredictsOthers) {
  ASSERT_FALSE(scaling::published_scaling().empty());
  for (const scaling::PublishedSeries& series : scaling::published_scaling()) {
    const auto fitted = std::ranges::count_if(series.points, &scaling::PublishedPoint::fitted);
    EXPECT_GE(fitted, 1) << series.name;
    EXPECT_LT(fitted, static_cast<std::ptrdiff_t>(series.points.size())) << series.name;
    EXPECT_FALSE(series.source.empty());
  }
}

TEST(Check, TextKeepsFittedAndPredictedApart) {
  const scaling::CheckedSeries checked = scaling::check(scaling::published_scaling().front());
  std::ostringstream out;
  scaling::write_check_text(std::span(&checked, 1), out);
  const std::string text = out.str();
  EXPECT_LT(text.rfind("\n  fitted"), text.find("\n  predicted")) << text;
  EXPECT_TRUE(says(text, "2 fitted points: "));
  EXPECT_TRUE(says(text, "3 predicted points: "));
}

}  // namespace
}  // namespace penstock
