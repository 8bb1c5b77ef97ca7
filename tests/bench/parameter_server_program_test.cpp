// SPDX-License-Identifier: Apache-2.0
// Runs `penstock run --job-name ps|worker` as a user does: what it trains, evaluates and reports.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/bench/parameter_server_program.h"
#include "tests/support/coloured_images.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"
#include "trainer/backend.h"
#include "trainer/checkpoint.h"
#include "trainer/update_strategy.h"

namespace penstock {
namespace {

TEST_F(ParameterServerProgram, AWorkerOnAGpuInFp16IsRefusedWithWhatToUse) {
  name_tasks(1, 1);
  for (const char* const update : {"parameter_server", "distributed_replicated", "byteps"}) {
    for (const char* const device : {"gpu", "GPU:replicas=2"}) {
      const ChildExit& exit = start("worker", 0,
                                    {std::string("--variable-update=") + update,
                                     std::string("--device=") + device, "--precision=fp16"})
                                  .wait();
      EXPECT_EQ(exit.code, 2) << exit.last_words;
      EXPECT_TRUE(says(exit.last_words, "use bf16, tf32 or fp32"));
    }
  }
}

TEST_F(ParameterServerProgram, TwoServersAndThreeWorkersGiveOneResultAndEndByThemselves) {
  for (const std::string update :
       {"parameter_server", "parameter_server:sync=tf", "distributed_replicated", "byteps"}) {
    SCOPED_TRACE(update);
    children_.clear();
    name_tasks(2, 3);
    const Words more{"--variable_update=" + update, "--device=emulated:img_per_s=400",
                     "--num-batches=20"};
    for (const int task : {0, 1}) start("ps", task);
    for (const int task : {1, 2}) start("worker", task, more);
    const ChildExit& exit = start("worker", 0, joined(more, {"--json"})).wait();
    ASSERT_EQ(exit.code, 0) << exit.last_words;
    for (const auto& child : children_) {
      EXPECT_EQ(child->wait().code, 0) << child->wait().last_words;
      EXPECT_EQ(child->wait().cause, ChildExit::Cause::ended);
    }
    const nlohmann::json measured = nlohmann::json::parse(exit.output);
    EXPECT_EQ(measured["config"]["num_processes"], 3);
    EXPECT_EQ(measured["images_per_step"], 12);
    ASSERT_EQ(measured["ranks"].size(), 3U);
    EXPECT_EQ(measured["step_ms"].size(), 20U);
    const double rate = measured["img_per_s"];
    EXPECT_GT(rate, 0);
    EXPECT_LT(rate, 1201);
  }
}

TEST_F(ParameterServerProgram, TheTableSaysWhetherWorkersWait) {
  name_tasks(1, 1);
  const auto& options = find_entry(update_table(), "parameter_server").options;
  for (const OptionValue& value : std::ranges::find(options, "sync", &OptionSpec::name)->values) {
    children_.clear();
    start("ps", 0);
    const std::string name(value.name);
    const ChildExit& exit = start("worker", 0,
                                  {"--variable-update=parameter_server:sync=" + name,
                                   "--num-batches=5", "--device=emulated:img_per_s=400"})
                                .wait();
    EXPECT_EQ(exit.code, 0) << name << ": " << exit.last_words;
    EXPECT_TRUE(says(exit.output, name == "false" ? "Sync:        False" : "Sync:        True"));
    EXPECT_EQ(children_.front()->wait().code, 0) << name;
  }
}

/// Worker 0 gets a batch each 10 ms and worker 1 each 80 ms, so worker 0 ends long before.
TEST_F(ParameterServerProgram, WorkersThatDoNotWaitCountWhileAllTrain) {
  name_tasks(1, 2);
  const std::string loader = folder_ / "paced.py";
  std::ofstream(loader) << "import os, time\n"
                           "def make():\n"
                           "    pixels = memoryview(bytearray(4*8*8*3)).cast('B', [4, 8, 8, 3])\n"
                           "    while True:\n"
                           "        time.sleep(float(os.environ['PACE']))\n"
                           "        yield pixels, [0, 1, 2, 3]\n";
  const auto worker = [&](int task, const char* pace, const Words& more) {
    const Words training{"--loader=" + loader + ":make",
                         "--model=trivial",
                         "--variable-update=parameter_server:sync=false",
                         "--device=emulated:img_per_s=4000",
                         "--num-warmup-batches=2",
                         "--num-batches=20"};
    return ChildCommand{.arguments = joined(joined(command("worker", task), training), more),
                        .timeout = 50s,
                        .environment = {std::string("PACE=") + pace}};
  };
  start("ps", 0);
  start(worker(1, ".08", {}));
  const ChildExit& exit = start(worker(0, ".01", {"--json"})).wait();
  ASSERT_EQ(exit.code, 0) << exit.last_words;
  const nlohmann::json measured = nlohmann::json::parse(exit.output);
  ASSERT_EQ(measured["ranks"].size(), 2U);
  EXPECT_GE(measured["facts"]["steps_outside_window"].get<double>(), 1);
  EXPECT_LT(measured["window_s"].get<double>(), measured["ranks"][1]["window_s"].get<double>());
  EXPECT_GT(measured["img_per_s"].get<double>(),
            1.1 * 2 * measured["ranks"][1]["img_per_s"].get<double>());
}

TEST_F(ParameterServerProgram, SaysTheRuleAndCountsStaleness) {
  if (match_entry(backend_table(), "cpu") == nullptr) GTEST_SKIP() << "built without oneDNN";
  name_tasks(1, 2);
  const Words more{"--variable-update=parameter_server",
                   "--cross_replica_sync=false",
                   "--device=cpu",
                   "--compute-threads=1",
                   "--model=lenet",
                   "--num-batches=10"};
  start("ps", 0);
  start("worker", 1, more);
  const ChildExit& exit = start("worker", 0, joined(more, {"--json"})).wait();
  ASSERT_EQ(exit.code, 0) << exit.last_words;
  EXPECT_TRUE(says(exit.last_words, "applies each worker's gradients on arrival"));
  const nlohmann::json measured = nlohmann::json::parse(exit.output);
  std::int64_t updates = 0;
  for (const auto& [name, count] : measured["counters"].items()) {
    if (name.starts_with("updates_stale_by_")) updates += count.get<std::int64_t>();
  }
  EXPECT_EQ(updates, 24);  // of both workers, with warm-up
}

TEST_F(ParameterServerProgram, AnEpochOfRealDataIsOneHoweverManyWorkersShareIt) {
  if (match_entry(backend_table(), "cpu") == nullptr) GTEST_SKIP() << "built without oneDNN";
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "it trains on --device cpu, and gcc's OpenMP is not instrumented";
#endif
  write_coloured_images(folder_, "train", 4, 10);
  const Words data{"--variable-update=parameter_server",
                   "--fake-location=queue:crop=full,repeat_cached_sample=true",
                   "--data-dir=" + (folder_.path() / "train").native(),
                   "--model=trivial_cifar10",
                   "--image-size=8",
                   "--device=cpu",
                   "--compute-threads=1",
                   "--num-warmup-batches=0",
                   "--num-epochs=1.2",
                   "--piecewise-learning-rate-schedule=0.02;0.5;0.2;1;0",
                   "--json",
                   "--batch-size=2"};
  const ChildExit one = exit_of(joined({PENSTOCK_PROGRAM, "run", "--num-gpus=2"}, data));
  ASSERT_EQ(one.code, 0) << one.last_words;
  name_tasks(1, 2);
  start("ps", 0);
  start("worker", 1, data);
  const ChildExit& exit = start("worker", 0, data).wait();
  ASSERT_EQ(exit.code, 0) << exit.last_words;
  const nlohmann::json result = nlohmann::json::parse(exit.output);
  EXPECT_EQ(result["examples_per_epoch"], 40);
  const auto losses = result["losses"].get<std::vector<double>>();
  const auto expected = nlohmann::json::parse(one.output)["losses"].get<std::vector<double>>();
  ASSERT_EQ(expected.size(), 12U);  // 40 images, 4 per step
  ASSERT_EQ(losses.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-4) << i;
}

struct SavedUpdate {
  friend void PrintTo(const SavedUpdate& saved, std::ostream* out) { *out << saved.update; }
  const char* name;
  const char* update;
  const char* optimizer;
  int workers;
};
/// Workers that learn four colours, and their servers.
class ParameterServerTraining : public ParameterServerProgram,
                                public ::testing::WithParamInterface<SavedUpdate> {
 protected:
  ParameterServerTraining() {
    write_coloured_images(folder_, "data/train", 4, 10);
    write_coloured_images(folder_, "data/val", 4, 3);
  }
  Words data(const std::string& name, int steps) const {
    return {std::string("--optimizer=") + GetParam().optimizer,
            "--fake-location=queue",
            "--data-dir=" + (folder_ / "data/train").string(),
            "--train-dir=" + (folder_ / name).string(),
            "--model=lenet",
            "--image-size=8",
            "--classes=4",
            "--batch-size=2",
            "--num-warmup-batches=0",
            "--init-learning-rate=0.002",
            "--device=cpu",
            "--compute-threads=1",
            "--order=strict",
            "--feeder-threads=1",
            "--json",
            fmt::format("--num-batches={}", steps)};
  }
  /// The result of worker 0.
  nlohmann::json train(const std::string& name, int steps, const Words& more = {}) {
    children_.clear();
    name_tasks(2, GetParam().workers);
    Words words =
        joined(data(name, steps), {std::string("--variable-update=") + GetParam().update});
    words = joined(words, more);
    for (const int task : {0, 1}) start("ps", task);
    for (int task = GetParam().workers - 1; task > 0; --task) start("worker", task, words);
    const ChildExit& exit = start("worker", 0, words).wait();
    for (const auto& child : children_) {
      EXPECT_EQ(child->wait().code, 0) << child->wait().last_words;
    }
    return nlohmann::json::parse(exit.output, nullptr, false);
  }
  std::string checkpoint(const std::string& name, int step) const {
    return read_text(checkpoint_path(folder_ / name, step));
  }
};

TEST_P(ParameterServerTraining, ResumedEqualsUninterruptedAndEvaluatesAsOneProcess) {
  if (match_entry(backend_table(), "cpu") == nullptr) GTEST_SKIP() << "built without oneDNN";
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "it trains on --device cpu, and gcc's OpenMP is not instrumented";
#endif
  const nlohmann::json whole = train("whole", 7, {"--eval-during-training-every-n-steps=7"});
  train("parts", 3, {"--save-model-steps=2"});
  const nlohmann::json rest = train("parts", 7);
  EXPECT_EQ(rest["step_ms"].size(), 4U);
  ASSERT_FALSE(checkpoint("whole", 7).empty());
  EXPECT_EQ(checkpoint("parts", 7), checkpoint("whole", 7));
  EXPECT_FALSE(checkpoint("parts", 2).empty());
  ASSERT_EQ(whole["evaluations"].size(), 1U);
  EXPECT_EQ(whole["evaluations"][0]["images"], 12);
  if (std::string(GetParam().update).ends_with("staged=true")) return;  // evaluates older weights
  const ChildExit exit = exit_of(joined({PENSTOCK_PROGRAM, "run", "--eval"}, data("whole", 7)));
  ASSERT_EQ(exit.code, 0) << exit.last_words;
  const nlohmann::json evaluated = nlohmann::json::parse(exit.output);
  EXPECT_EQ(evaluated["evaluations"][0]["step"], 7);
  EXPECT_EQ(evaluated["evaluations"][0]["top_1_accuracy"],
            whole["evaluations"][0]["top_1_accuracy"]);
}

// Updates on arrival have the same bits in each run only with one worker.
INSTANTIATE_TEST_SUITE_P(
    All, ParameterServerTraining,
    ::testing::Values(SavedUpdate{"Together", "parameter_server", "momentum", 2},
                      SavedUpdate{"Staged", "parameter_server:staged=true", "adam", 2},
                      SavedUpdate{"OnArrival", "parameter_server:sync=false", "adam", 1},
                      SavedUpdate{"BytePs", "byteps", "momentum", 2}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_F(ParameterServerProgram, AnEvaluationMayTakeLongerThanTheTimeout) {
  timeout_ = "3s";
  name_tasks(1, 2);
  const Words more{"--variable-update=parameter_server",
                   "--fake-location=host",
                   "--device=emulated:img_per_s=40",
                   "--num-batches=4",
                   "--eval-during-training-every-n-steps=2",
                   "--eval-batch-size=16",
                   "--num-eval-batches=10",
                   "--json"};
  ChildProcess& server = start("ps", 0);
  ChildProcess& other = start("worker", 1, more);
  const ChildExit& exit = start("worker", 0, more).wait();
  ASSERT_EQ(exit.code, 0) << exit.last_words;
  EXPECT_EQ(server.wait().code, 0) << server.wait().last_words;
  EXPECT_EQ(other.wait().code, 0) << other.wait().last_words;
  const nlohmann::json measured = nlohmann::json::parse(exit.output);
  ASSERT_EQ(measured["evaluations"].size(), 2U);
  EXPECT_GT(measured["evaluations"][0]["seconds"], 3.5);
  EXPECT_EQ(measured["step_ms"].size(), 4U);
}

TEST_F(ParameterServerProgram, TheFirstLossHasTheDecaysShareAlsoWhereWeightsAreStaged) {
  if (match_entry(backend_table(), "cpu") == nullptr) GTEST_SKIP() << "built without oneDNN";
  const auto first_loss = [&](const std::string& update) {
    name_tasks(1, 1);
    start("ps", 0);
    const ChildExit& exit = start("worker", 0,
                                  {"--variable-update=" + update, "--device=cpu",
                                   "--compute-threads=1", "--image-size=32", "--weight-decay=0.5",
                                   "--num-warmup-batches=0", "--num-batches=1", "--json"})
                                .wait();
    EXPECT_EQ(exit.code, 0) << exit.last_words;
    return nlohmann::json::parse(exit.output)["losses"].at(0).get<double>();
  };
  const double loss = first_loss("parameter_server");
  EXPECT_NEAR(first_loss("parameter_server:staged=true"), loss, 1e-3 * loss);
}

}  // namespace
}  // namespace penstock
