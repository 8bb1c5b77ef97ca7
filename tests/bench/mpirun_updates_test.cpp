// SPDX-License-Identifier: Apache-2.0
// `mpirun penstock run` with every kind of update: real training on the CPU, one or two devices per
// process, and a peer that stops responding.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tests/support/coloured_images.h"
#include "tests/support/entry_names.h"
#include "tests/support/mpirun_fixture.h"
#include "tests/support/thrown_by.h"
#include "tests/support/update_definitions.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;

constexpr int kWarmUp = 2, kSteps = 12;

class MpirunUpdates : public MpirunFixture {
 protected:
  Words mpirun(int processes, const std::string& update, const Words& more) const {
    Words words{"mpirun",
                "-np",
                std::to_string(processes),
                PENSTOCK_PROGRAM,
                "run",
                "--variable-update=" + update,
                "--fake-location=cpu",
                "--model=trivial_cifar10",
                "--image-size=8",
                "--batch-size=2",
                fmt::format("--num-warmup-batches={}", kWarmUp),
                "--cache-dir=" + folder_.path().native()};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Json run(int processes, const std::string& update, const Words& more) const {
    Words words = mpirun(processes, update, more);
    for (const char* const word : {"--device=cpu", "--compute-threads=1", "--json"}) {
      words.emplace_back(word);
    }
    words.push_back(fmt::format("--num-batches={}", kSteps));
    ChildProcess child({.arguments = words, .timeout = 50s});
    const ChildExit& exit = child.wait();
    EXPECT_EQ(exit.code, 0) << update << ": " << exit.last_words;
    return Json::parse(exit.output, nullptr, false);
  }
  static void expect_trained(const Json& result, const std::string& update) {
    ASSERT_FALSE(result.is_discarded()) << update;
    EXPECT_TRUE(result["status"] == "ok" || result["status"] == "draining") << update;
    ASSERT_EQ(result["losses"].size(), std::size_t{kSteps}) << update;
    for (const auto& loss : result["losses"]) EXPECT_GT(loss.get<double>(), 0) << update;
  }
  static std::int64_t reads_of(const Json& result) {
    std::int64_t reads = 0;
    for (const auto& [name, count] : result["counters"].items()) {
      if (!name.starts_with("reads_")) continue;
      EXPECT_GT(count.get<std::int64_t>(), 0) << name;
      reads += count.get<std::int64_t>();
    }
    return reads;
  }
};

class MpirunUpdate : public MpirunUpdates, public ::testing::WithParamInterface<DefinedUpdate> {};

TEST_P(MpirunUpdate, TrainsOverProcesses) {
  const Json result = run(2, GetParam().update, {});
  expect_trained(result, GetParam().update);
  EXPECT_EQ(result["config"]["num_processes"], 2);
  EXPECT_EQ(result["images_per_step"], 4);
  EXPECT_EQ(result["ranks"].size(), 2U);
}

INSTANTIATE_TEST_SUITE_P(All, MpirunUpdate, ::testing::ValuesIn(defined_updates()),
                         [](const auto& test) { return test_name(test.param.update); });

TEST_F(MpirunUpdates, SeveralDevicesOfEachProcessTrainTogether) {
  const Json result = run(2, "replicated",
                          {"--num-gpus=2", "--gradient-reduction=mean-sum", "--fake-location=gpu"});
  expect_trained(result, "replicated");
  EXPECT_EQ(result["images_per_step"], 8);
  const Json pairs = run(2, "async-sgd", {"--num-gpus=2"});
  expect_trained(pairs, "async-sgd");
  EXPECT_EQ(reads_of(pairs), 4 * (kWarmUp + kSteps));
}

TEST_F(MpirunUpdates, ReadsOfPairAveragingAreCountedOverAllRanks) {
  for (const char* const update : {"async-sgd", "async-sgd:prefetch=true,peer=kungfu"}) {
    const Json result = run(3, update, {});
    expect_trained(result, update);
    EXPECT_EQ(reads_of(result), 3 * (kWarmUp + kSteps)) << update;
    EXPECT_EQ(result["counters"]["model_requests_refused"], 0) << update;
  }
}

TEST_F(MpirunUpdates, AnEpochOfRealDataIsOneHoweverItsDevicesAreSplitOverProcesses) {
  write_coloured_images(folder_, "train", 4, 10);
  // All images are the first one, so the loss shows which learning rates came before, on any rank.
  const Words data{"--fake-location=queue:crop=full,repeat_cached_sample=true",
                   "--data-dir=" + (folder_.path() / "train").native(),
                   "--num-warmup-batches=0",
                   "--num-epochs=1.2",
                   "--piecewise-learning-rate-schedule=0.02;0.5;0.2;1;0",
                   "--device=cpu",
                   "--compute-threads=1",
                   "--json"};
  const auto losses = [&](int processes, const std::string& devices) {
    Words words = mpirun(processes, "replicated", data);
    words.push_back("--num-gpus=" + devices);
    ChildProcess child({.arguments = words, .timeout = 50s});
    const ChildExit& exit = child.wait();
    EXPECT_EQ(exit.code, 0) << exit.last_words;
    const Json result = Json::parse(exit.output, nullptr, false);
    EXPECT_EQ(result["examples_per_epoch"], 40) << processes << " processes";
    return result["losses"].get<std::vector<double>>();
  };
  const std::vector<double> threads = losses(1, "2"), ranks = losses(2, "1");
  ASSERT_EQ(threads.size(), 12U);  // 40 images, 4 per step
  ASSERT_EQ(ranks.size(), threads.size());
  EXPECT_NEAR(threads[11], threads[10], 1e-6) << "the rate is 0 from the second epoch on";
  EXPECT_GT(threads[9], threads[10] + 1e-4);
  for (std::size_t i = 0; i < threads.size(); ++i) EXPECT_NEAR(ranks[i], threads[i], 1e-4) << i;
}

/// The other ranks wait longer than --timeout, because rank 0 is alive.
TEST_F(MpirunUpdates, AnEvaluationMayTakeLongerThanTheTimeout) {
  Words words{"mpirun", "-np", "2"};
  const Words rank =
      rank_of(training({"--batch-size=4", "--num-batches=4", "--timeout=3s",
                        "--num-eval-batches=10", "--eval-during-training-every-n-steps=2",
                        "--eval-batch-size=16", "--device=emulated:img_per_s=40"}));
  words.insert(words.end(), rank.begin(), rank.end());
  start(words);
  ASSERT_TRUE(await_end());
  EXPECT_EQ(exit_.code, 0) << content_of(left_by(0, "err"));
  const Json saved = Json::parse(content_of(result()), nullptr, false);
  ASSERT_EQ(saved["evaluations"].size(), 2U);
  EXPECT_GT(saved["evaluations"][0]["seconds"], 3.5);
  EXPECT_EQ(saved["step_ms"].size(), 4U);
}

TEST_F(MpirunUpdates, HorovodHasOneDeviceInEachProcess) {
  const Words words = mpirun(2, "horovod", {"--num-gpus=2", "--num-batches=5"});
  ChildProcess child({.arguments = words, .timeout = 50s});
  const ChildExit& exit = child.wait();
  EXPECT_EQ(exit.code, 2);
  EXPECT_TRUE(says(exit.last_words, "use replicated"));
}

TEST_F(MpirunUpdates, APeerThatStandsStillIsNamed) {
  Words words{"mpirun", "-np", "2"};
  const Words rank =
      rank_of(training({"--model=trivial_cifar10", "--image-size=8", "--batch-size=2",
                        "--num-batches=100000", "--timeout=4s", "--device=emulated:img_per_s=400"},
                       "async-sgd"));
  words.insert(words.end(), rank.begin(), rank.end());
  start(words);
  ASSERT_TRUE(await_text(steps(), "\"step\":5"));
  const Ranks all = ranks();
  ASSERT_TRUE(all.contains(1));
  ASSERT_EQ(kill(all.at(1), SIGSTOP), 0);
  const bool returned = await_end();
  EXPECT_TRUE(!returned || exit_.code == 5) << exit_.code;
  EXPECT_EQ(content_of(left_by(0, "code")), "5\n");
  EXPECT_FALSE(lines_with("rank 1").empty());
}

}  // namespace
}  // namespace penstock
