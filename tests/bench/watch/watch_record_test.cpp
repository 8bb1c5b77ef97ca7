// SPDX-License-Identifier: Apache-2.0
// Steps that watched processes wrote: what is read, what is refused, and the figures.
#include "bench/watch/watch_record.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "bench/watch/watch_summary.h"
#include "dataflow/error.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"
#include "trainer/backends/emulated/recording.h"

namespace penstock::watch {
namespace {

using Json = nlohmann::ordered_json;

/// A line as watching.py writes it: `count` steps of 10 ms that wait for `wait_us`.
Json line_of(int rank, int wait_us = 2000, int count = 30) {
  Json line{{"schema", 1},
            {"pid", 100 + rank},
            {"rank", rank},
            {"cuda", false},
            {"loop", "train.py:9"},
            {"in_thread", false},
            {"wait_us", Json::array()},
            {"step_us", Json::array()},
            {"images", Json::array()},
            {"begins", {0}},
            {"ends_us", {500}}};
  for (int i = 0; i < count; ++i) {
    line["wait_us"].push_back(wait_us);
    line["step_us"].push_back(10000);
    line["images"].push_back(8);
  }
  return line;
}

class WatchRecordTest : public ::testing::Test {
 protected:
  void add(int process, const std::string& text) const {
    std::ofstream(folder_ / (std::to_string(process) + ".jsonl"), std::ios::app) << text;
  }
  WatchRecord read() {
    files_.read();
    WatchRecord record{.command = {"python3", "train.py"}, .seconds = 4};
    files_.put_into(record);
    return record;
  }
  std::string text_of(const WatchRecord& record) const {
    std::ostringstream text;
    document::write_text(document_of(record), text);
    return text.str();
  }

  TempFolder folder_;
  StepFiles files_{folder_.path()};
};

TEST_F(WatchRecordTest, FilesAreReadAsTheyGrow) {
  const std::string line = line_of(0).dump() + "\n";
  add(100, line + line.substr(0, 50));
  ASSERT_EQ(read().ranks.size(), 1U);
  EXPECT_EQ(read().ranks[0].loops[0].steps.size(), 30U);
  add(100, line.substr(50));
  const WatchRecord record = read();
  ASSERT_EQ(record.ranks[0].loops.size(), 1U);
  EXPECT_EQ(record.ranks[0].loops[0].steps.size(), 60U);
  EXPECT_EQ(record.ranks[0].loops[0].ends_us.size(), 2U);
  EXPECT_TRUE(record.ranks[0].loops[0].steps[30].begins_epoch);
  EXPECT_TRUE(record.left_out.empty());
}

TEST_F(WatchRecordTest, ADamagedFileIsNamedAndNothingElseIsLost) {
  add(100, line_of(0).dump() + "\n" + "{\"schema\": 1,\n" + line_of(0).dump() + "\n");
  add(101, line_of(1).dump() + "\n");
  const WatchRecord record = read();
  ASSERT_EQ(record.ranks.size(), 2U);
  EXPECT_EQ(record.ranks[0].loops[0].steps.size(), 30U);
  ASSERT_EQ(record.left_out.size(), 1U);
  EXPECT_TRUE(says(record.left_out[0], "the file of process 100 is damaged after"));
  EXPECT_TRUE(says(text_of(record), "the file of process 100"));
}

TEST_F(WatchRecordTest, WhatIsNoRegularFileOrHasNoEndOfLineIsNamedAndNotReadForEver) {
  ASSERT_EQ(mkfifo((folder_ / "100.jsonl").c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/zero", folder_ / "101.jsonl");
  add(102, line_of(0).dump() + "\n");
  std::filesystem::resize_file(folder_ / "102.jsonl", std::uint64_t{1} << 34);  // a sparse file
  const WatchRecord record = read();
  ASSERT_EQ(record.left_out.size(), 3U);
  EXPECT_TRUE(says(record.left_out[0], "not a regular file"));
  EXPECT_TRUE(says(record.left_out[1], "not a regular file"));
  EXPECT_TRUE(says(record.left_out[2], "a line has more than"));
  EXPECT_EQ(record.ranks.at(0).loops.at(0).steps.size(), 30U);
}

TEST_F(WatchRecordTest, EveryFieldIsChecked) {
  const std::vector<std::pair<std::string, Json>> wrong{
      {"schema", 2},       {"schema", "1"},
      {"pid", 0},          {"pid", nullptr},
      {"rank", -1},        {"rank", 1.5},
      {"rank", 1 << 21},   {"cuda", 1},
      {"loop", 7},         {"loop", std::string(801, 'x')},
      {"in_thread", "no"}, {"wait_us", 3},
      {"wait_us", {1}},    {"step_us", "x"},
      {"images", {1, 2}},  {"begins", {30}},
      {"begins", {-1}},    {"begins", 0},
      {"ends_us", {-1}},   {"ends_us", {"x"}},
      {"ends_us", nullptr}};
  int process = 200;
  for (const Json& value : {Json("x"), Json::array({1}), Json(std::vector<int>(30, 2001))}) {
    Json line = line_of(0);
    line["gpu_wait_us"] = value;
    add(++process, line.dump() + "\n");
  }
  for (const auto& [name, value] : wrong) {
    Json line = line_of(0);
    line[name] = value;
    add(++process, line.dump() + "\n");
  }
  const Json whole = line_of(0);
  for (const auto& [name, value] : whole.items()) {
    Json line = whole;
    line.erase(name);
    add(++process, line.dump() + "\n");
  }
  const std::vector<std::pair<std::string, Json>> wrong_steps{
      {"wait_us", -1},   {"wait_us", 20000},   {"wait_us", true},
      {"step_us", 1e20}, {"step_us", nullptr}, {"images", 1e10}};
  for (const auto& [name, value] : wrong_steps) {
    Json line = line_of(0);
    line[name][3] = value;
    add(++process, line.dump() + "\n");
  }
  add(++process, "\n");
  add(++process, "[]\n");
  add(++process, "\xff\xfe\n");
  const WatchRecord record = read();
  EXPECT_TRUE(record.ranks.empty());
  EXPECT_EQ(record.left_out.size(), static_cast<std::size_t>(process - 200));
}

TEST_F(WatchRecordTest, FiguresAreExact) {
  Json line = line_of(0);
  line["wait_us"][0] = 1'500'000;
  line["step_us"][0] = 1'600'000;
  line["begins"] = {0, 20};
  line["wait_us"][20] = 250'000;
  line["step_us"][20] = 300'000;
  line["wait_us"][29] = 9000;
  add(100, line.dump() + "\n");
  const WatchRecord record = read();
  const LoopSummary sum = summary_of(record.ranks[0].loops[0]);
  EXPECT_EQ(sum.batches, 30U);
  EXPECT_EQ(sum.steady, 28U);
  EXPECT_EQ(sum.images, 240);
  EXPECT_EQ(sum.batch_size, 8);
  EXPECT_NEAR(sum.waited_percent, 100 * (27 * 2.0 + 9) / 280, 1e-9);
  EXPECT_NEAR(sum.batches_per_s, 100, 1e-9);
  EXPECT_NEAR(sum.img_per_s, 800, 1e-9);
  EXPECT_NEAR(sum.wait_ms_p50, 2, 1e-9);
  EXPECT_NEAR(sum.wait_ms_max, 9, 1e-9);
  EXPECT_NEAR(sum.first_batch_s, 1.5, 1e-9);
  EXPECT_EQ(sum.epochs, 2U);
  EXPECT_NEAR(sum.epoch_edges_s, 0.2505, 1e-9);
  EXPECT_NEAR(*sum.waited_percent_with_edges, 100 * (27 * 2.0 + 9 + 250.5) / 580.5, 1e-9);
  EXPECT_TRUE(
      says(text_of(record),
           "waited for input for 54.0 % of its time: 22.5 % of its steady steps, and 0.25 s "
           "at the edges of 2 epochs. Before that, its first batch took 1.5 s."))
      << text_of(record);
}

TEST_F(WatchRecordTest, ALoopThatWaitsForItsFirstBatchIsNamed) {
  Json line = line_of(0);
  for (const char* const key : {"wait_us", "step_us", "images", "begins", "ends_us"}) {
    line[key] = Json::array();
  }
  line["waits_for_first"] = true;
  add(100, line.dump() + "\n");
  const WatchRecord record = read();
  const std::string name = record.ranks[0].loops[0].name;
  EXPECT_TRUE(says(text_of(record), "The loop " + name + " waits for its first batch."))
      << text_of(record);
  EXPECT_TRUE(parse_record(to_json(record).dump()).ranks[0].loops[0].waits_for_first);
  line.erase("waits_for_first");
  add(100, line.dump() + "\n");
  EXPECT_TRUE(says(text_of(read()), "No loop has two complete steps yet"));
}

TEST_F(WatchRecordTest, TheGpusShareIsThatOfTheStepsThatTellIt) {
  Json line = line_of(0);
  line["gpu_wait_us"] = std::vector<int>(30, 500);
  line["gpu_wait_us"][1] = nullptr;
  line["gpu_wait_us"][2] = 2000;
  add(100, line.dump() + "\n");
  add(101, line_of(1).dump() + "\n");
  const WatchRecord record = read();
  const LoopSummary sum = summary_of(record.ranks[0].loops[0]);
  ASSERT_TRUE(sum.gpu_waited_percent);
  EXPECT_NEAR(*sum.gpu_waited_percent, 100 * (27 * 0.5 + 2) / 280, 1e-9) << "28 of 29 steady steps";
  EXPECT_FALSE(summary_of(record.ranks[1].loops[0]).gpu_waited_percent);
  EXPECT_TRUE(says(text_of(record), "The GPU itself waited for 5.5 % (rank 0) of the time."));
  EXPECT_TRUE(says(text_of(record), "GPU waited %"));
  const std::string text = to_json(record).dump();
  EXPECT_EQ(parse_record(text).ranks, record.ranks);
  EXPECT_EQ(emulated::parse_recording(text, "0", "w.json").step_ms, std::vector<double>(20, 9.5));
}

TEST_F(WatchRecordTest, UnknownSizesHaveNoImageRate) {
  Json line = line_of(0);
  for (Json& images : line["images"]) images = 0;
  add(100, line.dump() + "\n");
  const LoopSummary sum = summary_of(read().ranks[0].loops[0]);
  EXPECT_EQ(sum.img_per_s, 0);
  EXPECT_NEAR(sum.batches_per_s, 100, 1e-9);
  EXPECT_TRUE(summary_json(sum).at("img_per_s").is_null());
}

TEST_F(WatchRecordTest, NamesTheSlowestRankAndWhetherItChanges) {
  for (int rank = 0; rank < 3; ++rank) add(rank, line_of(rank, 1000 * (3 - rank)).dump() + "\n");
  const auto slowest = slowest_rank(read());
  ASSERT_TRUE(slowest);
  EXPECT_EQ(slowest->rank, 0);
  EXPECT_EQ(slowest->percent_of_steps, 100);
  EXPECT_EQ(slowest->steps, 30U);
  EXPECT_TRUE(says(text_of(read()), "10.2 % (rank 2) to 30.1 % (rank 0)"))
      << "the end of the epoch took 0.5 ms more";
  EXPECT_TRUE(says(text_of(read()), "Rank 0 waited longest in 100 % of 30 steps: it is always"));
  // In 90 more steps rank 2 is the slowest.
  for (int rank = 0; rank < 3; ++rank) {
    add(rank, line_of(rank, 1000 * (1 + rank), 90).dump() + "\n");
  }
  EXPECT_EQ(slowest_rank(read())->rank, 2);
  EXPECT_FALSE(slowest_rank(read())->is_always_the_same());
  EXPECT_TRUE(says(text_of(read()), "Rank 2 waited longest in 75 % of 120 steps: the slowest"));
}

TEST_F(WatchRecordTest, RanksThatHardlyWaitHaveNoSlowest) {
  for (int rank = 0; rank < 2; ++rank) add(rank, line_of(rank, 10 + rank).dump() + "\n");
  EXPECT_FALSE(slowest_rank(read()));
}

TEST_F(WatchRecordTest, TwoProcessesOfOneRankAreToldApart) {
  Json other = line_of(0);
  other["pid"] = 7;
  add(100, line_of(0).dump() + "\n");
  add(7, other.dump() + "\n");
  EXPECT_FALSE(slowest_rank(read()));
  EXPECT_TRUE(says(text_of(read()), "0 (process 7)"));
}

TEST_F(WatchRecordTest, TheMainLoopIsTheLongestInTheMainThread) {
  Json thread = line_of(0, 2000, 90), brief = line_of(0, 2000, 5);
  thread["in_thread"] = true;
  thread["loop"] = "prefetch.py:3";
  brief["loop"] = "train.py:30";
  add(100, thread.dump() + "\n" + brief.dump() + "\n" + line_of(0).dump() + "\n");
  const WatchRecord record = read();
  ASSERT_EQ(record.ranks[0].loops.size(), 3U);
  EXPECT_EQ(record.ranks[0].loops[0].name, "train.py:9");
  EXPECT_EQ(record.ranks[0].loops[1].name, "train.py:30");
}

TEST_F(WatchRecordTest, TheRecordIsReadBackUnchanged) {
  add(100, line_of(0).dump() + "\n" + line_of(0, 3000).dump() + "\n");
  add(101, line_of(1).dump() + "\n");
  WatchRecord record = read();
  record.exit_code = 3;
  record.left_out = {"a file"};
  record.environment = read_environment();
  write_text(folder_ / "watch.json", to_json(record).dump() + "\n");
  for (const auto& path : {folder_ / "watch.json", folder_.path()}) {
    const auto again = read_record(path);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->ranks, record.ranks);
    EXPECT_EQ(again->command, record.command);
    EXPECT_EQ(again->exit_code, 3);
    EXPECT_EQ(text_of(*again), text_of(record));
  }
  write_text(folder_ / "other.json", R"({"schema":1,"runs":[]})");
  EXPECT_FALSE(read_record(folder_ / "other.json"));
  EXPECT_FALSE(read_record(folder_ / "none.json"));
  const std::string text = to_json(record).dump();
  write_text(folder_ / "cut.json", text.substr(0, text.size() / 2));
  EXPECT_TRUE(says(thrown_by<DataError>([&] { read_record(folder_ / "cut.json"); }), "cut.json"));
}

TEST_F(WatchRecordTest, AnEmulatedDeviceReplaysItsStepsWithoutTheWaits) {
  add(100, line_of(0).dump() + "\n");
  add(101, line_of(1, 4000).dump() + "\n");
  const std::string text = to_json(read()).dump();
  const emulated::Recording first = emulated::parse_recording(text, "", "w.json");
  EXPECT_EQ(first.step_ms, std::vector<double>(20, 8.0)) << "ten are warm-up";
  EXPECT_EQ(first.batch, 8);
  EXPECT_EQ(first.origin, "'w.json': loop train.py:9 of rank 0");
  EXPECT_EQ(emulated::parse_recording(text, "1", "w.json").step_ms.front(), 6);
  EXPECT_TRUE(says(thrown_by<ConfigError>([&] { emulated::parse_recording(text, "2", "w.json"); }),
                   "0, 1"));
  Json damaged = Json::parse(text);
  damaged["ranks"][0]["loops"][0]["wait_us"][12] = 11000;
  EXPECT_TRUE(
      says(thrown_by<DataError>([&] { emulated::parse_recording(damaged.dump(), "", "w.json"); }),
           "step 13"));
  damaged["ranks"][0]["loops"] = 3;
  EXPECT_TRUE(
      says(thrown_by<DataError>([&] { emulated::parse_recording(damaged.dump(), "", "w.json"); }),
           "w.json"));
}

TEST_F(WatchRecordTest, WithoutLoopsItSaysWhatToDo) {
  EXPECT_TRUE(says(text_of(read()), "watching.watch(loader)"));
}

/// Without times of a GPU, and if the GPU waits as long as the loop, the loop waits for each step.
TEST(WatchLoopPace, TellsALoopThatWaitsFromOneThatRunsAhead) {
  const auto record_of = [](std::optional<double> gpu_wait_us) {
    watch::Loop loop{.name = "train.py:1"};
    for (int i = 0; i < 20; ++i) {
      loop.steps.push_back({.wait_us = 6000,
                            .step_us = i % 2 == 0 ? 9000.0 : 20'000.0,
                            .images = 8,
                            .begins_epoch = i == 0,
                            .gpu_wait_us = gpu_wait_us});
    }
    watch::WatchRecord record;
    record.ranks.push_back({.loops = {loop}});
    return record;
  };
  EXPECT_TRUE(watch::loop_pace(record_of({}))->waits_for_steps);
  EXPECT_TRUE(watch::loop_pace(record_of(5900))->waits_for_steps);
  const watch::LoopPace ahead = watch::loop_pace(record_of(1000)).value();
  EXPECT_FALSE(ahead.waits_for_steps);
  EXPECT_NEAR(ahead.launch_ms, 3, 1e-9) << "the rest is a wait for the device";
  EXPECT_FALSE(watch::loop_pace(watch::WatchRecord{}));
}

}  // namespace
}  // namespace penstock::watch
