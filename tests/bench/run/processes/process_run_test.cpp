// SPDX-License-Identifier: Apache-2.0
#include "bench/run/processes/process_run.h"

#include <gtest/gtest.h>

#include "dataflow/error.h"
#include "tests/support/processes_in_memory.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

/// Rank 0 of three; the messages of the other ranks are prepared.
class ScriptedProcesses final : public PlayedProcess {
 public:
  explicit ScriptedProcesses(std::vector<std::string> others)
      : PlayedProcess({.launcher = "mpirun", .rank = 0, .size = 3}), others_(std::move(others)) {}
  std::vector<std::string> all_gather(std::string_view text, Nanoseconds,
                                      std::string_view what) override {
    if (others_.empty()) throw TimeoutError(std::string(what) + ": rank 1 is gone");
    std::vector<std::string> texts{std::string(text)};
    texts.insert(texts.end(), others_.begin(), others_.end());
    return texts;
  }

 private:
  const std::vector<std::string> others_;
};

class JoinRun : public ::testing::Test {
 protected:
  std::string refusal(const std::optional<cluster::Launch>& launch) {
    return thrown_by<ConfigError>([&] { spans_processes(config_, launch); });
  }
  const cluster::Launch four_{.launcher = "mpirun", .rank = 1, .size = 4};
  RunConfig config_;
};

TEST(Places, AreFilledInForEachRank) {
  EXPECT_EQ(for_rank("t.{rank}.{local_rank}.json", {}), "t.0.0.json");
  EXPECT_FALSE(has_place("t.{name}.json"));
  EXPECT_TRUE(has_place("t.{host}.json"));
  EXPECT_EQ(for_rank("{host}", {}).find('{'), std::string::npos);
  ProcessesInMemory(2).run([](cluster::Processes& processes) {
    const RunPeers peers{.processes = &processes};
    const std::string rank = std::to_string(processes.launch().rank);
    EXPECT_EQ(for_rank("ipc://feed{rank}", peers), "ipc://feed" + rank);
    EXPECT_EQ(feeder_for_rank("zmq-consume:endpoint=tcp://127.0.0.1:555{rank}", peers),
              "zmq-consume:endpoint=tcp://127.0.0.1:555" + rank);
    EXPECT_EQ(feeder_for_rank("zmq-consume:endpoint=ipc://feed", peers),
              "zmq-consume:endpoint=ipc://feed");
  });
}

TEST(Places, UnknownOnesAreRefusedWithTheKnown) {
  EXPECT_EQ(thrown_by<ConfigError>([] { check_places("--out", "r{rank}.{node}.json"); }),
            "--out is 'r{rank}.{node}.json', and {node} has no value; expected {rank}, "
            "{local_rank}, {host}");
  EXPECT_TRUE(says(
      thrown_by<ConfigError>([] { check_places_of("zmq-consume:endpoint=ipc://feed{ranks}"); }),
      "{ranks} has no value"));
  check_places("--out", "{0..9}{}{Rank}{host");
  check_places_of("zmq-consume:endpoint=ipc://feed{rank},producer=awk {print}");
}

TEST(Places, RanksOfAHostThatStartProducersHaveAnAddressEach) {
  const cluster::Launch second{
      .launcher = "mpirun", .rank = 3, .size = 4, .local_rank = 1, .local_size = 2};
  PlayedProcess processes(second);
  const RunPeers peers{.processes = &processes};
  EXPECT_EQ(feeder_for_rank(
                "zmq-consume:endpoint=ipc://feed,producer='serve --endpoint ipc://feed'", peers),
            "zmq-consume:endpoint=ipc://feed-1,producer='serve --endpoint ipc://feed-1'");
  EXPECT_EQ(feeder_for_rank("zmq-consume:endpoint=ipc://feed,producer='my_producer'", peers),
            "zmq-consume:endpoint=ipc://feed,producer='my_producer'");
  EXPECT_EQ(feeder_for_rank("host", peers), "host");
}

TEST_F(JoinRun, TrainsAloneIfNoOtherProcessWasStarted) {
  EXPECT_FALSE(spans_processes(config_, std::nullopt));
  config_.variable_update = "horovod";
  EXPECT_FALSE(spans_processes(config_, std::nullopt));
  EXPECT_FALSE(spans_processes(config_, cluster::Launch{.launcher = "mpirun"}));
}

TEST_F(JoinRun, RefusesAnUpdateThatTrainsInOneProcess) {
  const UpdateEntry threads_only{.name = "mine", .ranks = RankKind::threads};
  EXPECT_EQ(thrown_by<ConfigError>([&] { refuse_one_process_update(threads_only, four_); }),
            "mpirun started 4 processes, and --variable-update mine trains in one; use "
            "--variable-update replicated, or start without mpirun");
  for (const UpdateEntry* entry : update_table().entries) {
    EXPECT_NO_THROW(refuse_one_process_update(*entry, four_)) << entry->name;
  }
}

TEST_F(JoinRun, RefusesAnotherNumberOfProcessesThanWasAskedFor) {
  config_.num_processes = 2;
  EXPECT_EQ(refusal(std::nullopt),
            "--num-processes is 2, and this one alone was started; start with `mpirun -np 2`");
  EXPECT_EQ(refusal(four_), "--num-processes is 2, and 4 were started; start with `mpirun -np 2`");
}

TEST_F(JoinRun, RefusesWhatSeveralProcessesCannotDoTogether) {
  config_.variable_update = "horovod";
  config_.extend_window = true;
  EXPECT_TRUE(says(refusal(four_), "--extend-window"));
  config_.extend_window = false;
  config_.train_dir = "here";
  for (const char* update : {"sma", "independent", "async-sgd:prefetch=true"}) {
    config_.variable_update = update;
    EXPECT_TRUE(says(refusal(four_), std::string("with --variable-update ") + update +
                                         " each rank has different weights"));
  }
  config_.variable_update = "replicated";
  config_.eval_during_training_every_n_steps = 5;
  EXPECT_NO_THROW(refuse_unfit(config_));
  config_ = {};
  config_.train_dir = "here";
  config_.variable_update = "sma";
  config_.eval = true;  // nothing is saved
  EXPECT_NO_THROW(refuse_unfit(config_));
}

/// Rank 1 of two; rank 0's texts are prepared.
class BesideRank0 final : public PlayedProcess {
 public:
  explicit BesideRank0(std::vector<std::string> texts)
      : PlayedProcess({.launcher = "mpirun", .rank = 1, .size = 2}), texts_(std::move(texts)) {}
  std::vector<std::string> all_gather(std::string_view text, Nanoseconds,
                                      std::string_view) override {
    return {texts_.at(next_++), std::string(text)};
  }
  std::size_t taken() const { return next_; }

 private:
  const std::vector<std::string> texts_;
  std::size_t next_ = 0;
};

std::span<const std::byte> reads_nothing() {
  ADD_FAILURE() << "only rank 0 reads";
  return {};
}

TEST(FromRank0, OtherRanksGetItsBytesInPieces) {
  const std::string first(std::size_t{16} << 20, 'a');
  BesideRank0 processes({"0 " + std::to_string(first.size() + 3), first, "bcd"});
  const std::vector<std::byte> bytes = from_rank_0(processes, "reading", reads_nothing);
  ASSERT_EQ(bytes.size(), first.size() + 3);
  EXPECT_EQ(bytes.front(), std::byte{'a'});
  EXPECT_EQ(bytes.back(), std::byte{'d'});
  EXPECT_EQ(processes.taken(), 3U);
  BesideRank0 nothing({"0 0"});
  EXPECT_TRUE(from_rank_0(nothing, "reading", reads_nothing).empty());
}

TEST(FromRank0, ItsFailureIsThatOfEveryRank) {
  BesideRank0 damaged({"6 'model-4' is damaged"}), foreign({"2 'model-4' is of another model"});
  EXPECT_EQ(thrown_by<DataError>([&] { from_rank_0(damaged, "reading", reads_nothing); }),
            "on rank 0: 'model-4' is damaged");
  EXPECT_EQ(thrown_by<ConfigError>([&] { from_rank_0(foreign, "reading", reads_nothing); }),
            "on rank 0: 'model-4' is of another model");
  ScriptedProcesses others({"", ""});
  EXPECT_EQ(thrown_by<DataError>([&] {
              from_rank_0(others, "reading", []() -> std::span<const std::byte> {
                throw DataError("'model-4' is damaged");
              });
            }),
            "'model-4' is damaged");
}

TEST(CheckAlike, NamesTheRanksAndTheFlagsThatDiffer) {
  RunConfig config;
  config.batch_size = 32;
  const std::string same = describe(to_flags(config));
  ScriptedProcesses alike({same, same});
  EXPECT_NO_THROW(check_alike(alike, same));
  RunConfig other = config;
  other.batch_size = 64;
  other.prefetch = 5;
  ScriptedProcesses unlike({same, describe(to_flags(other))});
  const std::string message = thrown_by<ConfigError>([&] { check_alike(unlike, same); });
  EXPECT_TRUE(says(message, "rank 2 has"));
  EXPECT_TRUE(says(message, "--batch-size=64"));
  EXPECT_TRUE(says(message, "--prefetch=5"));
  EXPECT_TRUE(says(message, " on rank 0"));
  EXPECT_TRUE(says(message, "--batch-size=32"));
  EXPECT_FALSE(says(message, "rank 1 has"));
}

TEST(AwaitAllReady, RefusesRanksThatFoundDifferentNumbersOfExamples) {
  ScriptedProcesses alike({"80", "80"});
  EXPECT_NO_THROW(await_all_ready(alike, 80));
  ScriptedProcesses unlike({"80", "79"});
  const std::string message = thrown_by<ConfigError>([&] { await_all_ready(unlike, 80); });
  EXPECT_TRUE(says(message, "79 on rank 2 and 80 on rank 0"));
}

RunResult result_of_rank_0() {
  RunResult result;
  result.img_per_s = 100;
  result.sustained_img_per_s = 90;
  result.window_s = 2;
  result.images_per_step = 10;
  return result;
}

TEST(GatherRanks, AddUpSuppliesAndCountersAndKeepEachProcess) {
  std::vector<RunResult> results(3, result_of_rank_0());
  results[0].counters = {{"reads_stale_by_0", 3}, {"skipped_steps", 1}};
  results[1].counters = {{"reads_stale_by_0", 4}, {"skipped_steps", 1}};
  results[2].counters = {{"reads_stale_by_1", 5}, {"skipped_steps", 1}};
  results[2].img_per_s = 80;
  results[2].sustained_img_per_s = 40;
  ProcessesInMemory(3).run([&](cluster::Processes& self) {
    gather_ranks(self, results[static_cast<std::size_t>(self.launch().rank)]);
  });
  const RunResult& result = results.front();
  EXPECT_DOUBLE_EQ(result.sustained_img_per_s, 90 + 90 + 40);
  EXPECT_EQ(result.images_per_step, 30);
  const std::map<std::string, std::int64_t> counted{
      {"reads_stale_by_0", 7}, {"reads_stale_by_1", 5}, {"skipped_steps", 1}};
  EXPECT_EQ(result.counters, counted);
  ASSERT_EQ(result.ranks.size(), 3U);
  const std::string lines = format_ranks(result), host = result.ranks[2].host;
  EXPECT_TRUE(says(lines, "rank 1 on " + host + ": 100.00 images/sec\nrank 2 on " + host +
                              ": 80.00 images/sec\n"));
}

TEST(GatherRanks, SaysWhereRatesAreOfOneRankAlone) {
  ScriptedProcesses nobody({});
  RunResult result = result_of_rank_0();
  gather_ranks(nobody, result);
  EXPECT_EQ(result.status, Status::partial);
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_DOUBLE_EQ(result.img_per_s, 100);
  ASSERT_EQ(result.notes.size(), 1U);
  EXPECT_TRUE(says(result.notes[0], "rank 0 only"));
  RunResult stopped = result_of_rank_0();
  stopped.exit_code = 130;
  gather_ranks(nobody, stopped);
  ASSERT_EQ(stopped.notes.size(), 1U);
  EXPECT_EQ(stopped.exit_code, 130);
}

}  // namespace
}  // namespace penstock
