// SPDX-License-Identifier: Apache-2.0
// Steps that watched processes wrote: what is read, what is refused, and the figures.
#include "bench/watch/watch_record.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <functional>
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
  EXPECT_NEAR(sum.rate, 800, 1e-9);
  EXPECT_NEAR(summary_json(sum, "img").at("img_per_s"), 800, 1e-9);
  EXPECT_TRUE(summary_json(sum, "tokens").at("samples_per_s").is_null());
  EXPECT_NEAR(sum.wait_ms_p50, 2, 1e-9);
  EXPECT_NEAR(sum.wait_ms_max, 9, 1e-9);
  EXPECT_NEAR(sum.first_batch_s, 1.5, 1e-9);
  EXPECT_EQ(sum.epochs, 2U);
  EXPECT_NEAR(sum.epoch_edges_s, 0.2505, 1e-9);
  EXPECT_NEAR(*sum.waited_percent_with_edges, 100 * (27 * 2.0 + 9 + 250.5) / 580.5, 1e-9);
  EXPECT_TRUE(
      says(text_of(record),
           "The loop train.py:9 waited for input for 54.0 % of its time (after 1.5 s for "
           "the very first batch), mostly for the first batch of each epoch, 250 ms each;"));
}

/// A loop whose cause is planted: 90 steps that compute for 10 ms.
class PlantedCause : public WatchRecordTest {
 protected:
  PlantedCause() {
    line_["settings"] = {
        {"num_workers", 2}, {"prefetch_factor", 2}, {"persistent_workers", 1}, {"in_order", 1}};
    line_["ends_us"] = Json::array();
    set_waits([](int) { return 8; });
  }
  void set_waits(const std::function<double(int)>& wait_ms) {
    for (int i = 0; i < 90; ++i) {
      line_["wait_us"][i] = static_cast<int>(1000 * wait_ms(i));
      line_["step_us"][i] = 10'000 + static_cast<int>(1000 * wait_ms(i));
    }
  }
  /// Batches of 8 samples.
  void set_loading(double sample_ms, double on_processor, double collate_ms, double slowest_ms) {
    line_["loading"] = {{"batches", 90},
                        {"samples", 720},
                        {"samples_us", 720e3 * sample_ms},
                        {"samples_cpu_us", 720e3 * sample_ms * on_processor},
                        {"core_wait_us", 1},
                        {"collate_us", 90e3 * collate_ms},
                        {"slowest_batch_us", 1e3 * slowest_ms}};
  }
  /// The first sentence, and the loop in the JSON.
  std::pair<std::string, Json> answer() {
    add(++files_of_test_, line_.dump() + "\n");
    WatchRecord record = read();
    record.ranks.erase(record.ranks.begin(), record.ranks.end() - 1);
    record.environment.usable_cores = 4;
    const Json json = to_json(record);
    EXPECT_EQ(parse_record(json.dump()).ranks, record.ranks);
    return {text_of(record), json["ranks"][0]["loops"][0]};
  }
  void expect(const std::string& cause, const std::string& remedy, const std::string& why) {
    const auto [text, loop] = answer();
    EXPECT_EQ(loop["waits"]["cause"], cause) << text;
    EXPECT_EQ(loop.value("remedy", ""), remedy) << text;
    EXPECT_TRUE(says(text, why));
  }
  Json line_ = line_of(0, 0, 90);
  int files_of_test_ = 100;
};

TEST_F(PlantedCause, WorkersThatMakeTooFewBatchesShouldBeMore) {
  set_loading(4.5, 0.05, 0, 40);
  expect("work", "num_workers=5 (now 2)",
         "44.4 % of its time, because its 2 workers make fewer batches than are trained (a sample "
         "takes 4.5 ms, 5 % of it on a processor: it waits for storage, a network, a lock or a "
         "sleep); num_workers=5 (now 2) would save about 44 % of the time.");
}

/// One of n workers has the lock, and n - 1 wait.
TEST_F(PlantedCause, AgainstALockThatWorkersShareNoMoreWorkersAreNamed) {
  set_loading(4.5, 0.05, 0, 40);
  line_["states"] = {{"waiting for a lock", 48}, {"sleeping", 49}, {"computing", 3}};
  expect("work", "less time under the lock that its workers share",
         "5 % of it on a processor; its workers spend 49 % of the time sleeping, 48 % waiting for "
         "a lock); less time under the lock that its workers share would save up to 44 %");
  line_["states"]["waiting for a lock"] = 10;
  expect("work", "num_workers=5 (now 2)", "79 % of the time sleeping, 16 % waiting for a lock");
  line_["states"] = {{"waiting for a lock", 9}, {"sleeping", 8}};
  expect("work", "num_workers=5 (now 2)", "it waits for storage, a network, a lock or a sleep");
}

/// They loaded for 90 % of their time.
TEST_F(PlantedCause, TheTimeInWhichWorkersHaveNothingToLoadDoesNotCount) {
  set_loading(4.05, 0.05, 0, 40);
  line_["states"] = {{"waiting for the network", 30}, {"sleeping", 70}};
  expect("work", "num_workers=4 (now 2)",
         "78 % of the time sleeping, 22 % waiting for the network");
}

TEST_F(PlantedCause, SamplesThatComputeOnAllCoresShouldBeFaster) {
  line_["settings"]["num_workers"] = 4;
  set_loading(9, 0.99, 0, 80);
  expect("work", "samples that take 5.0 ms at most", "a sample takes 9.0 ms, 99 % of it");
  set_loading(1, 0.99, 70, 80);
  expect("work", "a faster collate_fn, or fewer bytes to copy", "collating a batch takes 70.0 ms");
}

TEST_F(PlantedCause, SamplesThatWaitForAProcessorNeedNoCheaperCode) {
  line_["settings"]["num_workers"] = 6;
  line_["states"] = {{"computing", 100}};
  set_loading(20, 0.4, 0, 170);
  line_["loading"]["core_wait_us"] = 0.5 * 720e3 * 20;
  expect("work", "a free processor for its samples (6 workers on 4 cores)",
         "40 % of it on a processor and 50 % waiting for one");
  EXPECT_TRUE(says(answer().first, "56 % waiting for a processor, 44 % computing"));
}

TEST_F(PlantedCause, WithoutWorkersBatchesAreMadeBetweenSteps) {
  line_["settings"] = {{"num_workers", 0}};
  set_loading(1, 0.1, 0, 10);
  expect("in_turn", "num_workers=1 (now 0)", "its batches are made between two steps, 8.0 ms each");
}

TEST_F(PlantedCause, FewSlowBatchesAreUneven) {
  set_waits([](int step) { return step % 10 == 5 ? 80 : 0; });
  set_loading(1, 0.1, 0, 90);
  expect("uneven", "prefetch_factor=18 (now 2) or in_order=False",
         "and the slowest batch took 90 ms to make, the mean one 8 ms");
}

TEST_F(PlantedCause, WorkersThatStartAnewShouldPersist) {
  line_["settings"]["persistent_workers"] = 0;
  line_["begins"] = {0, 30, 60};
  set_waits([](int step) { return step % 30 == 0 ? 500 : 0; });
  set_loading(1, 0.1, 0, 10);
  expect("edges", "persistent_workers=True", "mostly for the first batch of each epoch, 500 ms");
}

TEST_F(PlantedCause, WaitsThatGrowAreNamed) {
  set_waits([](int step) { return step / 5; });
  set_loading(2, 0.1, 0, 30);
  expect("growing",
         "samples that stay as fast as at first (look at what grows: lists, caches, open files, "
         "memory that is swapped)",
         "waits longer and longer: from 3.1 ms at first to 14.7 ms in the end");
}

TEST_F(PlantedCause, BatchesThatLieReadyAreSlowToGet) {
  set_loading(0.2, 0.9, 0, 3);
  expect("in_turn", "a core for that process, or fewer bytes in a batch,",
         "the loop's process takes 8.0 ms to get one");
}

TEST_F(PlantedCause, ALoaderThatKeepsUpNeedsNothing) {
  set_waits([](int) { return 0.1; });
  set_loading(1, 0.1, 0, 10);
  expect("none", "", "waited for input for 1.0 % of its time: its loader keeps up.");
}

TEST_F(PlantedCause, TakingBatchesThatLieReadyIsNoFaultOfTheLoader) {
  set_waits([](int) { return 0.9; });
  set_loading(0.2, 0.9, 0, 3);
  expect("none", "", "waited for input for 8.3 % of its time: its loader keeps up.");
}

TEST_F(PlantedCause, OfAnUnknownLoaderTheShapeOfItsWaitsIsSaid) {
  line_.erase("settings");
  expect("work", "a loader that makes batches faster, or in more workers",
         "because its loader makes fewer batches than are trained;");
  line_["settings"] = {{"num_workers", 2}};
  EXPECT_TRUE(says(answer().first, "not known"));
}

TEST_F(PlantedCause, DamagedTimesOfLoadingAreRefused) {
  set_loading(1, 0.1, 0, 10);
  line_["loading"]["collate_us"] = -1;
  add(1, line_.dump() + "\n");
  set_loading(1, 0.1, 0, 10);
  line_["settings"]["num_workers"] = "two";
  add(2, line_.dump() + "\n");
  const WatchRecord record = read();
  EXPECT_TRUE(record.ranks.empty());
  EXPECT_EQ(record.left_out.size(), 2U);
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
  EXPECT_TRUE(says(text_of(record), "The loop " + name + " waits for its first batch."));
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
  EXPECT_EQ(sum.rate, 0);
  EXPECT_NEAR(sum.batches_per_s, 100, 1e-9);
  EXPECT_TRUE(summary_json(sum, "img").at("img_per_s").is_null());
}

TEST_F(WatchRecordTest, NamesTheRankThatOthersWaitForAndWhetherItChanges) {
  for (int rank = 0; rank < 3; ++rank) add(rank, line_of(rank, 1000 * (3 - rank)).dump() + "\n");
  const auto skew = skew_of(read());
  ASSERT_TRUE(skew);
  EXPECT_EQ(skew->culprit, Culprit::rank);
  EXPECT_EQ(skew->rank, 0);
  EXPECT_NEAR(skew->delay_ms, 1, 1e-9);
  EXPECT_NEAR(skew->delay_percent, 10, 1e-9);
  EXPECT_EQ(skew->decided_percent, 100);
  EXPECT_TRUE(says(text_of(read()), "10.2 % (rank 2) to 30.1 % (rank 0)"))
      << "the end of the epoch took 0.5 ms more";
  EXPECT_TRUE(says(text_of(read()), "Rank 0 makes the others wait for its input: 1.00 ms a step"));
  // In 90 more steps rank 2 is the slowest.
  for (int rank = 0; rank < 3; ++rank) {
    add(rank, line_of(rank, 1000 * (1 + rank), 90).dump() + "\n");
  }
  EXPECT_EQ(skew_of(read())->culprit, Culprit::moving);
  EXPECT_TRUE(says(text_of(read()), "the last one changes from step to step"));
}

TEST_F(WatchRecordTest, RanksThatHardlyWaitHaveNoCulprit) {
  for (int rank = 0; rank < 2; ++rank) add(rank, line_of(rank, 10 + rank).dump() + "\n");
  EXPECT_EQ(skew_of(read())->culprit, Culprit::none);
}

TEST_F(WatchRecordTest, RecordsOfSeveralHostsAreOneTable) {
  std::vector<WatchRecord> records;
  for (int rank = 0; rank < 3; ++rank) {
    TempFolder folder;
    StepFiles files(folder.path());
    Json line = line_of(2 - rank, rank == 1 ? 4000 : 10);
    line["host"] = "node" + std::to_string(2 - rank);
    std::ofstream(folder / "1.jsonl") << line.dump() << "\n";
    files.read();
    files.put_into(records.emplace_back(WatchRecord{.seconds = 4, .exit_code = rank == 2 ? 3 : 0}));
    EXPECT_EQ(parse_record(to_json(records.back()).dump()).ranks, records.back().ranks);
  }
  const WatchRecord joined = join_records(records);
  ASSERT_EQ(joined.ranks.size(), 3U);
  EXPECT_EQ(joined.ranks[2].host, "node2");
  EXPECT_EQ(joined.exit_code, 3);
  EXPECT_EQ(skew_of(joined)->rank, 1);
  EXPECT_TRUE(says(text_of(joined), "0 on node0"));
  EXPECT_TRUE(says(text_of(joined), "Rank 1 on node1 makes the others wait"));
}

TEST_F(WatchRecordTest, TwoProcessesOfOneRankAreToldApart) {
  Json other = line_of(0);
  other["pid"] = 7;
  add(100, line_of(0).dump() + "\n");
  add(7, other.dump() + "\n");
  EXPECT_FALSE(skew_of(read()));
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
