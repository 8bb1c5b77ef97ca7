// SPDX-License-Identifier: Apache-2.0
// Figures are well-formed for any input, show intervals, and show a sentence if there is no data.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <map>
#include <string>

#include "bench/report/figures/axis.h"
#include "bench/report/figures/figures.h"
#include "bench/report/figures/markup.h"
#include "bench/report/figures/quantity.h"
#include "bench/report/figures/scale.h"
#include "bench/report/figures/svg.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"
#include "tests/support/words.h"

namespace penstock {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr const char* kHostile = "</text><script>alert('1')</script>&\"\xff\x01 \xe2\x80\xae";
const report::FigureSize kWide{.width = 860}, kNarrow{.width = 360};
const statistics::Estimate kWorst{kNan, -kInfinity, kInfinity, 0},
    kFar{1e300, -1e300, kInfinity, 1};

using Figures = std::map<std::string, std::function<std::string(const report::FigureSize&)>>;

/// The faults that tests/bench/report/svg_faults.py finds in each figure, in every size.
std::string faults_of(const Figures& figures) {
  const TempFolder folder;
  for (const auto& [name, draw] : figures) {
    write_text(folder / (name + "-wide.svg"), draw(kWide));
    write_text(folder / (name + "-narrow.svg"), draw(kNarrow));
    write_text(folder / (name + "-file.svg"), draw({.width = 720, .standalone = true}));
  }
  const ChildExit exit = exit_of({PENSTOCK_PYTHON, PENSTOCK_SVG_FAULTS, folder.path().native()});
  EXPECT_EQ(exit.code, 0) << exit.last_words;
  return exit.output;
}

report::SupplyDemand make_supply() {
  report::SupplyDemand data;
  data.measured = {{1, {1050, 1040, 1060}}, {2, {2030, 2000, 2050}}};
  for (double threads = 0.5; threads < 5; threads += 0.5) {
    const double rate = 1050 * threads;
    data.law.push_back({threads, {rate, 0.95 * rate, 1.05 * rate, 3}});
  }
  data.demand_img_per_s = 3571;
  data.needed = statistics::ThreadsNeeded{.reachable = true,
                                          .threads = {3.8, 3.5, 4.3, 3},
                                          .whole = 4,
                                          .peak_img_per_s = {},
                                          .measured_to = 2};
  return data;
}

report::Waterfall make_waterfall() {
  using statistics::Estimate;
  return {"a ladder",
          {{.label = "device", .added_ms = Estimate{35.8, 35.7, 35.9, 5}, .whole = true},
           {.label = "decode", .from_ms = 35.8, .added_ms = Estimate{30.1, 28.7, 31.5, 5}},
           {.label = "region", .from_ms = 65.9, .added_ms = Estimate{-8.2, -9.1, -7.3, 5}},
           {.label = "cold files"}}};
}

report::SplitBar make_split() {
  return {"queue",          {27.5, 26.6, 28.5, 5}, {24.9, 24, 25.8, 5},
          {1.1, 1, 1.2, 5}, {-1.4, -1.9, -0.9, 5}, 2.9};
}

Figures all_of(const report::Waterfall& waterfall, const std::vector<report::SplitBar>& splits,
               const std::vector<report::CostDot>& dots,
               const std::vector<report::QueueTrack>& queues, double window_s,
               const report::StepSeries& steps, const report::SupplyDemand& supply) {
  std::vector<report::MemoryTrack> memory;
  for (const report::QueueTrack& track : queues) {
    memory.push_back({track.name, static_cast<double>(track.slots), track.filled});
  }
  return {{"waterfall", report::drawn<report::waterfall_figure>(waterfall)},
          {"split", report::drawn<report::cost_split_figure>(splits)},
          {"dots", report::drawn<report::cost_dots_figure>(dots)},
          {"queues", report::drawn<report::queue_occupancy_figure>(queues, window_s)},
          {"memory", report::drawn<report::memory_figure>(memory, window_s)},
          {"steps", report::drawn<report::step_times_figure>(steps)},
          {"supply", report::drawn<report::supply_demand_figure>(supply)}};
}

TEST(Figures, AreWellFormedForUsualData) {
  EXPECT_EQ(
      faults_of(all_of(
          make_waterfall(), {make_split()}, {{"queue", {43.5, 38, 49, 3}, {38.5, 43.5, 48.5}}},
          {{"host ring", 3, 0.2, 84, 0, {0, 1, 0.5, 2.9}}}, 15,
          {{36, 60, 61, 250}, {0, 24, 25, 210}, {0, 0.5, 0, 0}, {}, {}, 35.8}, make_supply())),
      "");
}

TEST(Figures, AreWellFormedForHostileLabelsAndNan) {
  const report::Waterfall waterfall{
      kHostile,
      {{.label = kHostile, .added_ms = statistics::Estimate{10, 9, 11, 3}, .whole = true},
       {.label = kHostile, .from_ms = kNan, .added_ms = kWorst},
       {.label = kHostile, .from_ms = kInfinity, .added_ms = kFar},
       {.label = std::string(500, 'W'), .from_ms = 10, .over_device = true}}};
  report::SupplyDemand supply = make_supply();
  supply.measured.push_back({kInfinity, {1}});
  supply.measured.push_back({4, {kNan}});
  supply.law.push_back({6, kWorst});
  supply.law.push_back({7, {7000, -kInfinity, kInfinity, 1}});
  supply.needed->threads = {3.8, 0, kInfinity, 1};
  supply.demand_img_per_s = 1e12;
  EXPECT_EQ(
      faults_of(all_of(waterfall, {{kHostile, kWorst, kFar, kWorst, {0, 0, 0, 0}, kNan}},
                       {{kHostile, kWorst, {kNan, 5}}, {"b", kFar, {kInfinity}}},
                       {{kHostile, 0, kNan, kInfinity, -1, {kNan, -5, 1e9}}}, kNan,
                       {{kNan, -3, 5, kInfinity}, {kNan}, {1e9}, {-1}, {kInfinity}, kNan}, supply)),
      "");
}

TEST(Figures, SayInASentenceThatThereIsNothingToShow) {
  const Figures figures = all_of({}, {}, {}, {}, 0, {}, {});
  EXPECT_EQ(faults_of(figures), "");
  for (const auto& [name, draw] : figures) {
    const std::string text = draw(kWide);
    EXPECT_TRUE(says(text, "<text")) << name;
    EXPECT_TRUE(says(text, ".</text>")) << name << ": a sentence";
    EXPECT_FALSE(says(text, "<line")) << name << ": no axes without data";
  }
}

TEST(Figures, TimeSharesAreWellFormedWhateverTheyHold) {
  const auto drawn_of = [](std::string name, const std::vector<report::TimeShare>& parts) {
    return std::pair(std::move(name),
                     report::drawn<report::time_shares_figure>(std::string(kHostile), parts));
  };
  const report::TimeShare made{"made (producer)", {90, 88, 92, 3}, "device"};
  EXPECT_EQ(faults_of({drawn_of("usual", {made, {"on its way", {10, 9, 11, 3}, "transfer"}}),
                       drawn_of("hostile", {{kHostile, kWorst, "gain"}, {"b", kFar, "gain"}, made}),
                       drawn_of("zeros", {{"none", {}, "gain"}, made}), drawn_of("empty", {})}),
            "");
  const std::string figure = report::time_shares_figure(
      "a batch", {made, {"on its way", {10, 9, 11, 3}, "transfer"}}, kWide);
  EXPECT_TRUE(says(figure, "made (producer) 90.0 ms (88.0 to 92.0) (90 %)"));
  EXPECT_TRUE(says(figure, "100 ms"));
}

TEST(Figures, ShowEveryInterval) {
  const std::string waterfall = report::waterfall_figure(make_waterfall(), kWide);
  EXPECT_TRUE(says(waterfall, "+30.1 ms (28.7 to 31.5)"));
  EXPECT_TRUE(says(waterfall, "class=\"whisker\""));
  EXPECT_TRUE(
      says(report::cost_split_figure({make_split()}, kWide), "starvation 24.9 ms (24.0 to 25.8)"));
  EXPECT_TRUE(says(report::cost_dots_figure({{"queue", {43.5, 38, 49, 3}, {}}}, kWide),
                   "43.5 % (38.0 to 49.0)"));
  EXPECT_TRUE(
      says(report::supply_demand_figure(make_supply(), kWide), "4 cores needed: 3.8 (3.5 to 4.3)"));
}

std::vector<report::PipelineStage> make_pipeline() {
  return {{"read", "2 decode threads", "busy 3 %", 60952},
          {"decode", "2 decode threads", "busy 96 %", 2105, true},
          {"copy", "1 stager", "busy 4 %", 53333},
          {"train", "2 devices", "busy 57 %", 3571}};
}

TEST(Pipeline, HasEachStagesRateOnItsArrowAndMarksTheNarrowPlaceOnce) {
  for (const report::FigureSize& size : {kWide, kNarrow}) {
    const std::string figure = report::pipeline_figure(make_pipeline(), 3571, size);
    for (const char* part : {"60,952", "2,105", "53,333", "3,571", "2 decode threads", "busy 96 %"})
      EXPECT_TRUE(says(figure, part)) << part;
    const std::size_t mark = figure.find(">bottleneck<");
    ASSERT_NE(mark, std::string::npos);
    EXPECT_EQ(figure.find(">bottleneck<", mark + 1), std::string::npos);
  }
}

TEST(Pipeline, IsWellFormedWhateverItHolds) {
  using Stages = std::vector<report::PipelineStage>;
  const auto draw = [](const Stages& stages, double demand) {
    return report::drawn<report::pipeline_figure>(stages, demand);
  };
  std::vector<report::PipelineStage> many(9, {kHostile, kHostile, kHostile, kNan, true});
  many[3].img_per_s = kInfinity;
  many[4].img_per_s = -1;
  EXPECT_EQ(faults_of({{"usual", draw(make_pipeline(), 3571)},
                       {"hostile", draw(many, kNan)},
                       {"no-demand", draw(make_pipeline(), 0)},
                       {"nothing", draw({}, 0)}}),
            "");
  EXPECT_TRUE(says(report::pipeline_figure({}, 0, kWide), "was not recorded"));
}

TEST(SupplyBars, SayTheShareAndTearWhatIsManyTimesTheDemand) {
  const std::vector<report::SupplyBar> bars = {{"queue", {2031, 2003, 2059, 5}, 3571},
                                               {"cpu", {63700, 63000, 64000, 5}, 3571}};
  const std::string figure = report::supply_bars_figure(bars, kWide);
  EXPECT_TRUE(says(figure, "2,031 of 3,571 img/s (57 %)"));
  EXPECT_TRUE(says(figure, "torn bars are longer"));
  EXPECT_TRUE(says(figure, "class=\"tear\""));
  const std::string whole = report::supply_bars_figure({bars.front()}, kWide);
  EXPECT_FALSE(says(whole, "class=\"tear\""));
  EXPECT_FALSE(says(whole, "more than is wanted"));
}

TEST(SupplyBars, AreWellFormedWhateverTheyHold) {
  const auto draw = [](const std::vector<report::SupplyBar>& bars) {
    return report::drawn<report::supply_bars_figure>(bars);
  };
  EXPECT_EQ(faults_of({{"usual", draw({{"queue", {2031, 2003, 2059, 5}, 3571}})},
                       {"hostile", draw({{kHostile, {kNan, kNan, kNan, 5}, 3571},
                                         {kHostile, {1, -kInfinity, kInfinity, 1}, 1},
                                         {"none", {0, 0, 0, 1, true}, 0}})},
                       {"nothing", draw({})}}),
            "");
}

TEST(CostDots, MarkAnIntervalThatTheAxisCuts) {
  const std::string cut =
      report::cost_dots_figure({{"queue", {22.8, -58, 75, 3}, {20.8, 22.8, 24.8}}}, kWide);
  EXPECT_TRUE(says(cut, "<polygon")) << "an arrowhead";
  EXPECT_TRUE(says(cut, "95 % interval"));
  const std::string whole =
      report::cost_dots_figure({{"queue", {22.8, 20.8, 24.8, 3, true}, {20.8, 22.8, 24.8}}}, kWide);
  EXPECT_FALSE(says(whole, "<polygon"));
  EXPECT_TRUE(says(whole, "lowest to highest round"));
}

TEST(Waterfall, DrawsWhatTakesLessAsAGainAndSaysWhatWasNotMeasured) {
  const std::string figure = report::waterfall_figure(make_waterfall(), kWide);
  EXPECT_TRUE(says(figure, "class=\"gain\""));
  EXPECT_TRUE(says(figure,
                   "\xE2\x88\x92"
                   "8.20 ms"));
  EXPECT_TRUE(says(figure, "not measured"));
  EXPECT_FALSE(says(figure, "does not begin at 0"));
}

TEST(Waterfall, SaysWhereItsAxisDoesNotBeginAtZero) {
  const report::Waterfall waterfall{"small",
                                    {{.label = "host",
                                      .from_ms = 35.8,
                                      .added_ms = statistics::Estimate{0.2, 0.1, 0.3, 5},
                                      .over_device = true}}};
  EXPECT_TRUE(says(report::waterfall_figure(waterfall, kWide), "does not begin at 0"));
}

TEST(SupplyDemand, MarksWhatIsExtrapolatedAndWhatCannotBeReached) {
  report::SupplyDemand data = make_supply();
  EXPECT_TRUE(says(report::supply_demand_figure(data, kWide), ">extrapolated</text>"));
  EXPECT_TRUE(says(report::supply_demand_figure(data, kWide), "class=\"shade\""));
  data.needed->reachable = false;
  data.needed->peak_img_per_s = {2900, 2500, 3300, 5};
  EXPECT_TRUE(says(report::supply_demand_figure(data, kWide),
                   "not reachable: peak 2,900 img/s (2,500 to 3,300)"));
}

TEST(StepTimes, CountsStepsThatAreTooLongForTheFigure) {
  std::vector<double> steps(400, 10);
  steps[7] = 1000;
  const std::string figure = report::step_times_figure({steps, {}, {}, {}, {}, {}}, kWide);
  EXPECT_TRUE(says(figure, "longest 1,000 ms. 1 above")) << figure.substr(0, 400);
  EXPECT_LT(figure.size(), 40000U) << "long windows are drawn in columns";
}

TEST(StepTimes, ShowIdlenessWhereItsCauseIsNotKnownAndNoComputingWhereNeitherIs) {
  const std::string idle = report::step_times_figure({{60, 60}, {}, {}, {}, {24, 24}, {}}, kWide);
  EXPECT_TRUE(says(idle, ">idle</text>"));
  EXPECT_TRUE(says(idle, ">computing</text>"));
  EXPECT_FALSE(says(idle, ">no batch ready</text>"));
  const std::string neither = report::step_times_figure({{60, 60}, {}, {}, {}, {}, {}}, kWide);
  EXPECT_FALSE(says(neither, ">computing</text>"));
  EXPECT_TRUE(says(neither, ">the whole step</text>"));
}

report::ScalingCurves make_curves(bool doublings) {
  return {
      .title = "a ladder",
      .description = "of ranks",
      .ranks_title = "ranks",
      .value_title = "img/s",
      .stamp = "projected",
      .doublings = doublings,
      .from_origin = !doublings,
      .curves = {
          {"measured", report::CurveLook::first, true, {{1, 100, 90, 110}, {8, 700, 650, 720}}},
          {"ideal", report::CurveLook::ideal, false, {{1, 100, 100, 100}, {8, 800, 800, 800}}}}};
}

TEST(ScalingCurves, AreWellFormedWhateverTheyShow) {
  report::ScalingCurves hostile = make_curves(false);
  hostile.title = hostile.stamp = hostile.curves[0].name = kHostile;
  hostile.curves[0].points.push_back({kNan, 5, 0, 0});
  hostile.curves[0].points.push_back({-3, 5, 0, 0});
  hostile.curves[0].points.push_back({4096, 1e12, -kInfinity, kInfinity});
  report::ScalingCurves single = make_curves(true);
  for (report::Curve& curve : single.curves) curve.points.resize(1);
  const auto draw = [](const report::ScalingCurves& data) {
    return report::drawn<report::scaling_curves_figure>(data);
  };
  EXPECT_EQ(faults_of({{"linear", draw(make_curves(false))},
                       {"doublings", draw(make_curves(true))},
                       {"hostile", draw(hostile)},
                       {"single", draw(single)},
                       {"empty", draw({.title = "nothing",
                                       .description = "at all",
                                       .ranks_title = {},
                                       .value_title = {},
                                       .stamp = {},
                                       .curves = {}})}}),
            "");
}

TEST(ScalingCurves, BeginAtTheOriginWhereTheyShould) {
  const std::string linear = report::scaling_curves_figure(make_curves(false), kWide);
  const std::string doublings = report::scaling_curves_figure(make_curves(true), kWide);
  EXPECT_TRUE(says(linear, ">0</text>"));
  EXPECT_TRUE(says(doublings, ">8</text>"));
  EXPECT_TRUE(says(doublings, "projected"));
  EXPECT_TRUE(says(linear, "curve-ideal"));
}

TEST(Figures, BringTheirStyleOnlyAsFiles) {
  const std::string inlined = report::waterfall_figure(make_waterfall(), kWide);
  const std::string file =
      report::waterfall_figure(make_waterfall(), {.width = 720, .standalone = true});
  EXPECT_FALSE(says(inlined, "<style>"));
  EXPECT_TRUE(says(file, "prefers-color-scheme:dark"));
  EXPECT_FALSE(says(file, "url(")) << "nothing is fetched";
}

TEST(Markup, LeavesNothingThatAParserWouldTrip) {
  EXPECT_EQ(report::escaped("<a b='c'>&\"d"), "&lt;a b=&#39;c&#39;&gt;&amp;&quot;d");
  EXPECT_EQ(report::escaped("\xC3\xA4\n"), "\xC3\xA4\n");
  const std::string replacement = "\xEF\xBF\xBD";
  EXPECT_EQ(report::escaped("\xff"), replacement);
  EXPECT_EQ(report::escaped(std::string_view("\0", 1)), replacement);
  EXPECT_EQ(report::escaped("\xC0\xAF"), replacement + replacement) << "overlong";
  EXPECT_EQ(report::escaped("\xE2\x82"), replacement + replacement) << "cut short";
}

TEST(Quantity, ReadsLikeANumberOfAPerson) {
  EXPECT_EQ(report::number_text(3571.4), "3,571");
  EXPECT_EQ(report::number_text(1234567), "1,234,567");
  EXPECT_EQ(report::number_text(27.55), "27.6");
  EXPECT_EQ(report::fixed_text(-0.04, 1), "0.0");
  EXPECT_EQ(report::fixed_text(kNan, 1), "unknown");
  EXPECT_EQ(report::estimate_text({27.55, 26.1, 29.04, 5}, "ms"), "27.6 ms (26.1 to 29.0)");
  EXPECT_EQ(report::estimate_text({3571.4, 3570.2, 3572.1, 5}, "img/s"),
            "3,571 img/s (3,570 to 3,572)");
  EXPECT_EQ(report::estimate_text({5, 4, kInfinity, 5}, ""), "5.00 (4.00 or more)");
  EXPECT_EQ(report::estimate_text({5, -kInfinity, kInfinity, 1}, "ms"), "5.00 ms (no interval)");
}

TEST(Scale, HasTicksAtOneTwoAndFiveAndKeepsToItsEnds) {
  EXPECT_EQ(report::ticks_between(0, 63, 5).step, 20);
  EXPECT_EQ(report::ticks_between(0, 0.9, 6).decimals, 1);
  EXPECT_EQ(report::ticks_between(0, 3, 9, true).values, (std::vector<double>{0, 1, 2, 3}));
  const report::Scale scale(0, 10, 100, 200);
  EXPECT_EQ(scale(5), 150);
  EXPECT_EQ(scale(kInfinity), 200);
  EXPECT_EQ(scale(-kInfinity), 100);
  EXPECT_EQ(scale(kNan), 100);
}

}  // namespace
}  // namespace penstock
