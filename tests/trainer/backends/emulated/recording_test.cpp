// SPDX-License-Identifier: Apache-2.0
// Tests which recordings can be replayed from which files, and which are refused.
#include "trainer/backends/emulated/recording.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "bench/record/result_json.h"
#include "dataflow/error.h"
#include "dataflow/host_device.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thrown_by.h"
#include "tests/support/virtual_clock.h"
#include "trainer/backend.h"

namespace penstock {
namespace {

using emulated::parse_recording;
using emulated::Recording;
using Json = nlohmann::ordered_json;

/// 12 steps of 5, 6, ... ms; in each the device is idle for 1 ms.
RunResult run_of(const std::string& feeder) {
  RunResult result;
  result.config.fake_location = feeder;
  result.config.model = "resnet50";
  result.config.device = "cpu";
  result.config.batch_size = 32;
  for (int step = 0; step < 12; ++step) {
    result.step_ms.push_back(5 + step);
    result.device_idle_ms.push_back(1);
  }
  return result;
}

SweepResult sweep_of(const std::vector<std::string>& feeders) {
  SweepResult sweep;
  for (const std::string& feeder : feeders) {
    Row row;
    row.config = run_of(feeder).config;
    row.repetitions = {{.round = 0, .result = run_of(feeder)},
                       {.round = 1, .result = run_of(feeder)}};
    row.repetitions[1].result.step_ms.back() = static_cast<double>(100 * feeder.size());
    sweep.rows.push_back(row);
  }
  return sweep;
}

Recording parse(const Json& json, const std::string& row = "") {
  return parse_recording(json.dump(), row, "results.json");
}

/// The message of the refusal.
template <typename Kind>
std::string refusal(const Json& json, const std::string& row = "") {
  return thrown_by<Kind>([&] { parse(json, row); });
}

TEST(Recording, ARunsOwnTimesAreItsStepsWithoutTheIdleTimeAndWithoutTheFirst) {
  const Recording recording = parse(to_json(run_of("gpu")));
  ASSERT_EQ(recording.step_ms.size(), 11U);
  EXPECT_DOUBLE_EQ(recording.step_ms.front(), 5);
  EXPECT_DOUBLE_EQ(recording.step_ms.back(), 15);
  EXPECT_DOUBLE_EQ(recording.mean_step_ms(), 10);
  EXPECT_EQ(recording.batch, 32);
  EXPECT_EQ(recording.warm_up, 10U);
  EXPECT_EQ(recording.origin, "'results.json': resnet50 on cpu");
}

TEST(Recording, ASweepsRowsAreFoundByFeederNumberOrLabel) {
  const Json sweep = to_json(sweep_of({"queue:crop=center", "gpu", "host"}));
  EXPECT_EQ(parse(sweep).origin, "row 'gpu' of 'results.json': resnet50 on cpu");
  EXPECT_EQ(parse(sweep).step_ms.size(), 22U);  // both repetitions
  EXPECT_DOUBLE_EQ(parse(sweep).step_ms.back(), 299);
  for (const char* row : {"1", "queue", "Queue", "queue:crop=center"}) {
    EXPECT_DOUBLE_EQ(parse(sweep, row).step_ms.back(), 1699) << row;
  }
  EXPECT_DOUBLE_EQ(parse(sweep, "3").step_ms.back(), 399);
  EXPECT_EQ(parse(to_json(sweep_of({"cpu"}))).origin,
            "row 'cpu' of 'results.json': resnet50 on cpu");
}

TEST(Recording, RowsThatAreNotOneAreRefusedWithTheirNumbers) {
  SweepResult two = sweep_of({"gpu", "gpu"});
  two.rows[1].config.batch_size = 64;
  const std::string message = refusal<ConfigError>(to_json(two));
  EXPECT_TRUE(says(message, "1: gpu, batch_size 32; 2: gpu, batch_size 64"));
  EXPECT_TRUE(says(message, "row="));
  EXPECT_EQ(parse(to_json(two), "gpu, batch_size 64").batch, 64);
  EXPECT_THROW(parse(to_json(two), "queue"), ConfigError);
  EXPECT_THROW(parse(to_json(two), "3"), ConfigError);
  EXPECT_THROW(parse(to_json(run_of("gpu")), "gpu"), ConfigError);
}

TEST(Recording, NewerForeignAndDamagedFilesAreRefusedByName) {
  Json newer = to_json(sweep_of({"gpu"}));
  newer["schema"] = 1000;
  for (const Json& json : {newer, Json{{"penstock", true}}, Json(5), Json::array()}) {
    EXPECT_TRUE(says(refusal<ConfigError>(json), "'results.json'")) << json;
  }
  const std::string good = to_json(run_of("gpu")).dump();
  const std::string cut = good.substr(0, good.size() / 2);
  EXPECT_THROW(parse_recording(cut, "", "cut.json"), DataError);
  EXPECT_THROW(parse_recording("", "", "empty.json"), DataError);
}

TEST(Recording, TimesThatCannotBeAreDamage) {
  const std::vector<std::function<void(Json&)>> damages = {
      [](Json& run) { run["step_ms"].push_back(5); },
      [](Json& run) { run["step_ms"][3] = -7; },
      [](Json& run) { run["step_ms"][3] = 1e12; },
      [](Json& run) { run["step_ms"][3] = nullptr; },
      [](Json& run) { run["step_ms"] = "many"; },
      [](Json& run) { run["device_idle_ms"][3] = 50; },
      [](Json& run) { run.erase("device_idle_ms"); },
      [](Json& run) { run["config"] = 3; },
      [](Json& run) { run["config"]["batch_size"] = -1; },
      [](Json& run) { run["config"]["batch_size"] = 1.5; },
      [](Json& run) { run["config"]["batch_size"] = 4'000'000'000; },
      [](Json& run) { run["config"]["model"] = 5; },
      [](Json& run) { run["schema"] = "two"; },
  };
  for (std::size_t i = 0; i < damages.size(); ++i) {
    Json run = to_json(run_of("gpu"));
    damages[i](run);
    const std::string message = refusal<DataError>(run);
    EXPECT_TRUE(says(message, "'results.json'")) << i;
    EXPECT_TRUE(says(message, "record it again")) << i;
  }
}

TEST(Recording, TooFewStepsAndDevicesThatComputeNothingAreRefused) {
  RunResult brief = run_of("gpu");
  brief.step_ms.resize(10);
  brief.device_idle_ms.resize(10);  // nine without the first
  EXPECT_TRUE(says(refusal<ConfigError>(to_json(brief)), "9 steps"));
  RunResult idle = run_of("gpu");
  idle.device_idle_ms = idle.step_ms;
  EXPECT_TRUE(says(refusal<ConfigError>(to_json(idle)), "computed nothing"));
}

TEST(Recording, ADeviceReplaysAFileAndBeginsAgainBehindItsEnd) {
  const TempFolder folder;
  const std::string text = to_json(run_of("gpu")).dump();
  const auto bytes = std::as_bytes(std::span(text));
  folder.write("run.json", {bytes.begin(), bytes.end()});
  VirtualClock clock;
  const BackendEntry& entry = find_entry(backend_table(), "emulated");
  const Options options("emulated", entry.options,
                        {"emulated", {{"trace", (folder / "run.json").string()}}});
  const auto backend = entry.make(options, clock);
  const auto device = backend->open(0);
  const auto stream = device->make_stream();
  Graph graph(ImageShape{2, 2, 3});
  graph.add("logits", Linear{4}, {Graph::kInput});
  const auto executable = backend->compile(graph, {.batch = {.images = 16}}, *device);
  Batch batch;
  batch.valid = 16;  // half of what was recorded
  StepResult result;
  for (int step = 0; step < 30; ++step) {
    const Time before = static_cast<Timeline*>(stream->native())->free_at();
    executable->run(Phase::train, batch, *stream, {}, result);
    const Nanoseconds time = static_cast<Timeline*>(stream->native())->free_at() - before;
    EXPECT_EQ(time, (5 + step % 11) * std::chrono::microseconds(500)) << step;
  }
  EXPECT_DOUBLE_EQ(backend->facts().at("emulated_img_per_s"), 3200);
  EXPECT_DOUBLE_EQ(backend->facts().at("emulated_step_ms"), 5);
  EXPECT_EQ(backend->facts().at("emulated_trace_steps"), 11);
  const std::string note = backend->notes().at(0);
  EXPECT_NE(note.find("replays 11 step times"), std::string::npos) << note;
  EXPECT_NE(note.find("batches of 16 take the same time per image"), std::string::npos) << note;
}

}  // namespace
}  // namespace penstock
