// SPDX-License-Identifier: Apache-2.0
// Results of a sweep or a run are read back completely. Damaged, newer or foreign files are refused
// by name.
#include "bench/record/saved_results.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/record/result_json.h"
#include "bench/report/report.h"
#include "dataflow/error.h"
#include "tests/bench/record/sweep_rows.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

SweepResult make_sweep() {
  SweepResult sweep;
  sweep.environment.cpu_model = "Some CPU";
  sweep.environment.usable_cores = 2;
  sweep.environment.gpus = {"one", "two"};
  sweep.environment.steal_percent = 0.5;
  sweep.environment.libraries["TBB"] = "2021.8";
  sweep.command = "penstock sweep";
  sweep.seed = 42;
  sweep.repetitions = 3;
  sweep.rounds = {{1, 0}, {0, 1}, {0, 1}};
  sweep.warnings = {"careful"};
  sweep.rows = {make_ok_row("gpu", 1000, true), make_ok_row("queue:upsampling=plain", 750)};
  RunResult& result = sweep.rows[1].repetitions[0].result;
  result.losses = {7.25, std::nan("")};
  result.stages = {{.name = "decode", .workers = "decode threads", .threads = 2, .cpu_s = 1.5}};
  result.queues = {{.name = "host ring", .slots = 3, .mean_filled = 1.5, .filled = {1, 2}}};
  result.starved_ms = {0, 0.5};
  result.facts["emulated_img_per_s"] = 359;
  result.evaluations = {{.step = 3, .images = 8, .top1 = 0.5, .top5 = 0.75, .complete = true}};
  result.examples_per_epoch = 1000;
  Row absent = make_row("python-queue");
  absent.unavailable = "not built";
  sweep.rows.push_back(absent);
  sweep.varied = {&find_config_key("fake_location")};
  summarise(sweep);
  return sweep;
}

std::string text_of(const SweepResult& sweep) {
  std::ostringstream text;
  find_entry(report::report_table(), "json").write(sweep, {}, text);
  return text.str();
}

/// The error message for the results of make_sweep after `damage`.
std::string refusal(const std::function<void(Json&)>& damage) {
  Json json = Json::parse(text_of(make_sweep()));
  damage(json);
  return thrown_by<DataError>([&] { parse_saved_results(json.dump(), "that.json"); });
}

void expect_refusal(const std::function<void(Json&)>& damage, const std::string& words) {
  const std::string text = refusal(damage);
  EXPECT_TRUE(says(text, words));
  EXPECT_TRUE(says(text, "cannot read 'that.json'"));
}

TEST(SavedResults, ASweepIsReadBackWhole) {
  const SweepResult sweep = make_sweep();
  const SweepResult back = parse_saved_results(text_of(sweep), "a.json");
  EXPECT_EQ(text_of(back), text_of(sweep));
  ASSERT_EQ(back.rows.size(), 3U);
  EXPECT_TRUE(back.rows[0].is_ceiling);
  EXPECT_EQ(back.rows[2].unavailable, "not built");
  EXPECT_EQ(back.varied, sweep.varied);
  EXPECT_TRUE(std::isnan(back.rows[1].repetitions[0].result.losses[1]));
}

TEST(ResultsSchema, SaysWhatEachKeyMeans) {
  const Json schema = results_schema();
  for (const Json& form : schema["anyOf"]) {
    for (const auto& [name, property] : form["properties"].items()) {
      if (name == "config" || name == "environment" || name == "sweep") continue;
      EXPECT_FALSE(property.value("description", "").empty()) << name;
    }
  }
}

TEST(SavedResults, FiguresOfRowsAreComputedAnew) {
  Json json = Json::parse(text_of(make_sweep()));
  json["runs"][1]["img_per_s"]["median"] = 99999;
  json["runs"][1]["status"] = "failed";
  const SweepResult back = parse_saved_results(json.dump(), "a.json");
  EXPECT_EQ(back.rows[1].status, Status::ok);
  EXPECT_EQ(back.rows[1].img_per_s->median, 750);
}

TEST(SavedResults, SchemaOneIsReadWithWhatItLacksLeftEmpty) {
  Json json = Json::parse(text_of(make_sweep()));
  json["schema"] = 1;
  json["sweep"].erase("varied");
  for (Json& run : json["runs"]) {
    run.erase("is_ceiling");
    run.erase("unavailable");
    for (Json& repetition : run["repetitions"]) {
      for (const char* name : {"starved_ms", "copy_exposed_ms", "late_ms", "stages", "queues",
                               "instrumentation_s", "examples_per_epoch"}) {
        repetition.erase(name);
      }
    }
  }
  const SweepResult back = parse_saved_results(json.dump(), "old.json");
  EXPECT_TRUE(back.rows[0].is_ceiling);
  EXPECT_FALSE(back.rows[1].is_ceiling);
  EXPECT_EQ(back.rows[2].unavailable, "not built");
  EXPECT_TRUE(back.rows[1].repetitions[0].result.stages.empty());
  EXPECT_EQ(back.varied, make_sweep().varied);
  json["schema"] = 2;
  EXPECT_THROW(parse_saved_results(json.dump(), "old.json"), DataError);
}

TEST(SavedResults, StagesOfEarlierVersionsHaveTheRoleThatTheirNameSays) {
  Json json = Json::parse(text_of(make_sweep()));
  json["runs"][1]["repetitions"][0]["stages"][0].erase("role");
  const SweepResult back = parse_saved_results(json.dump(), "old.json");
  EXPECT_EQ(back.rows[1].repetitions[0].result.stages[0].role, StageRole::decodes);
}

TEST(SavedResults, RatesOfEarlierVersionsAreThoseOfImages) {
  Json json = Json::parse(text_of(make_sweep()));
  for (Json& run : json["runs"]) {
    for (Json& repetition : run["repetitions"]) {
      for (const char* const key : {"rate", "sustained_rate", "samples_per_s", "unit"}) {
        EXPECT_EQ(repetition.erase(key), 1U) << key;
      }
    }
  }
  EXPECT_EQ(text_of(parse_saved_results(json.dump(), "old.json")), text_of(make_sweep()));
}

TEST(SavedResults, ASettingOfEarlierVersionsThatNothingReadIsLeftOut) {
  Json json = Json::parse(text_of(make_sweep()));
  json["runs"][0]["config"]["local_parameter_device"] = "cpu";
  EXPECT_EQ(text_of(parse_saved_results(json.dump(), "old.json")), text_of(make_sweep()));
}

TEST(SavedResults, NewerOnesAreRefusedByTheirSchema) {
  expect_refusal([](Json& json) { json["schema"] = 3; }, "a newer Penstock wrote it");
  expect_refusal([](Json& json) { json["schema"] = 0; }, "schema is 0");
  expect_refusal([](Json& json) { json["runs"][0]["config"]["colour"] = "red"; },
                 "runs[0].config.colour is no setting of this program");
}

TEST(SavedResults, DamagedOnesAreRefusedByWhatIsWrong) {
  expect_refusal([](Json& json) { json["runs"][1]["repetitions"][2]["window_s"] = "ten"; },
                 "runs[1].repetitions[2].window_s is \"ten\"; expected a number");
  expect_refusal([](Json& json) { json["runs"][1]["repetitions"][0].erase("step_ms"); },
                 "runs[1].repetitions[0] has no 'step_ms'");
  expect_refusal([](Json& json) { json["runs"][0]["repetitions"][0]["rate"] = -1; },
                 "].rate is -1; expected a number of at least 0");
  expect_refusal([](Json& json) { json["runs"][0]["repetitions"][0]["exit_code"] = 1e300; },
                 "exit_code is 1e+300; expected a whole number");
  expect_refusal([](Json& json) { json["sweep"]["rounds"][0][0] = 3; },
                 "sweep.rounds[0][0] is 3; expected a whole number from 0 to 2");
  expect_refusal([](Json& json) { json["runs"][0]["config"]["batch_size"] = -4; },
                 "runs[0].config.batch_size cannot be");
  expect_refusal([](Json& json) { json["runs"][0]["repetitions"][0]["status"] = "fine"; },
                 "status is \"fine\"");
  expect_refusal([](Json& json) { json["runs"] = Json::array(); }, "runs is a list of 0");
}

TEST(SavedResults, ForeignTextsAreRefused) {
  for (const char* text : {"", "hello", "[]", "{}", "3", "{\"benchmarks\": []}", "{\"runs\": []}",
                           "{\"a\": 1}\n{\"b\": 2}"}) {
    EXPECT_THROW(parse_saved_results(text, "x"), DataError) << text;
  }
}

TEST(SavedResults, RunsOnLinesAreRepetitionsOfRows) {
  std::string text;
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    for (const char* feeder : {"gpu", "cpu"}) {
      RunResult result = make_result(Status::ok, 100 + static_cast<double>(seed), 100);
      result.config.fake_location = feeder;
      result.config.seed = seed;
      text += to_json(result).dump() + "\n";
    }
  }
  const SweepResult sweep = parse_saved_results(text, "runs.jsonl");
  ASSERT_EQ(sweep.rows.size(), 2U);
  EXPECT_EQ(sweep.rows[1].repetitions.size(), 3U);
  EXPECT_EQ(sweep.rows[1].config.fake_location, "cpu");
  EXPECT_TRUE(sweep.rows[0].is_ceiling);
  EXPECT_EQ(sweep.repetitions, 3);
}

TEST(SavedResults, TheSweepBehindAnIsolationIsRead) {
  const Json json{
      {"schema", 1}, {"kind", "isolation"}, {"sweep", Json::parse(text_of(make_sweep()))}};
  EXPECT_EQ(text_of(parse_saved_results(json.dump(), "isolation.json")), text_of(make_sweep()));
}

TEST(SavedResults, AFolderStandsForTheFileInIt) {
  const TempFolder folder;
  std::ofstream(folder.path() / "results.json") << text_of(make_sweep());
  EXPECT_EQ(read_saved_results(folder.path()).rows.size(), 3U);
  EXPECT_THROW(read_saved_results(folder.path() / "absent.json"), ConfigError);
}

}  // namespace
}  // namespace penstock
