// SPDX-License-Identifier: Apache-2.0
// `mpirun penstock run` with every kind of update: real training on the CPU, one or two devices per
// process, and a peer that stops responding.
#include <fmt/format.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>

#include "tests/support/coloured_images.h"
#include "tests/support/entry_names.h"
#include "tests/support/mpirun_fixture.h"
#include "tests/support/reserved_port.h"
#include "tests/support/thrown_by.h"
#include "tests/support/update_definitions.h"
#include "trainer/checkpoint.h"
#include "trainer/safetensors.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;

constexpr int kWarmUp = 2, kSteps = 12;

class MpirunUpdates : public MpirunFixture {
 protected:
  Words rank(const std::string& update, const Words& more) const {
    return joined(
        {PENSTOCK_PROGRAM, "run", "--variable-update=" + update, "--fake-location=cpu",
         "--model=trivial_cifar10", "--image-size=8", "--batch-size=2",
         fmt::format("--num-warmup-batches={}", kWarmUp), "--cache-dir=" + folder_.path().native()},
        more);
  }
  static Json finish(int processes, const Words& words, const std::string& update) {
    const ChildExit exit = exit_of(processes, words);
    EXPECT_EQ(exit.code, 0) << update << ": " << exit.last_words;
    return Json::parse(exit.output, nullptr, false);
  }
  Json run(int processes, const std::string& update, const Words& more) const {
    const Words words = joined(more, {"--device=cpu", "--compute-threads=1", "--json",
                                      fmt::format("--num-batches={}", kSteps)});
    return finish(processes, rank(update, words), update);
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
  const ReservedPort port;
  for (const Words& more : {Words{}, Words{"--rendezvous=127.0.0.1:" + port.text()}}) {
    const Json result = run(2, GetParam().update, more);
    expect_trained(result, GetParam().update);
    EXPECT_EQ(result["config"]["num_processes"], 2);
    EXPECT_EQ(result["images_per_step"], 4);
    EXPECT_EQ(result["ranks"].size(), 2U);
  }
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
    const Json result = finish(
        processes, rank("replicated", joined(data, {"--num-gpus=" + devices})), "replicated");
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

/// Runs that learn four colours, in a folder with images to train on and to evaluate.
class MpirunTraining : public MpirunUpdates {
 protected:
  MpirunTraining() {
    write_coloured_images(folder_, "data/train", 4, 10);
    write_coloured_images(folder_, "data/val", 4, 3);
  }
  /// `processes` have batches of 4 together.
  Json train(int processes, const std::string& update, const std::string& name, int steps,
             const Words& more = {}) const {
    const Words words =
        joined(data(), {fmt::format("--batch-size={}", 4 / processes),
                        fmt::format("--num-batches={}", steps), "--train-dir=" + folder(name)});
    return finish(processes, rank(update, joined(words, more)), update);
  }
  Words data() const {
    return {"--fake-location=queue",
            "--data-dir=" + (folder_.path() / "data/train").native(),
            "--classes=4",
            "--order=strict",
            "--feeder-threads=1",
            "--model=lenet",
            "--num-warmup-batches=0",
            "--device=cpu",
            "--compute-threads=1",
            "--json"};
  }
  std::string folder(const std::string& name) const { return (folder_.path() / name).native(); }
  std::string checkpoint(const std::string& name, int step) const {
    return content_of(checkpoint_path(folder(name), step));
  }
  /// Expects the same tensors, by default up to rounding.
  static void expect_near(const std::string& a, const std::string& b, float tolerance = 1e-5F) {
    const SafeTensors one = parse_safetensors(std::as_bytes(std::span(a))),
                      other = parse_safetensors(std::as_bytes(std::span(b)));
    ASSERT_EQ(one.tensors.size(), other.tensors.size());
    for (std::size_t i = 0; i < one.tensors.size(); ++i) {
      EXPECT_EQ(one.tensors[i].name, other.tensors[i].name);
      const auto count = one.tensors[i].data.size() / sizeof(float);
      std::vector<float> values(count), others(count);
      std::memcpy(values.data(), one.tensors[i].data.data(), count * sizeof(float));
      std::memcpy(others.data(), other.tensors[i].data.data(), count * sizeof(float));
      for (std::size_t k = 0; k < count; ++k) {
        ASSERT_NEAR(values[k], others[k], tolerance) << one.tensors[i].name << " " << k;
      }
    }
  }
};

TEST_F(MpirunTraining, ResumedRanksEqualUninterruptedOnesAndOneProcess) {
  const Words momentum{"--optimizer=momentum",
                       "--piecewise-learning-rate-schedule=0.004;0.5;0.001"};  // from step 5 on
  train(2, "replicated", "whole", 8, momentum);
  train(2, "replicated", "parts", 3, momentum);
  const Json rest = train(2, "replicated", "parts", 8, momentum);
  EXPECT_EQ(rest["step_ms"].size(), 5U);
  ASSERT_FALSE(checkpoint("whole", 8).empty());
  EXPECT_EQ(checkpoint("parts", 8), checkpoint("whole", 8));
  train(1, "replicated", "alone", 8, momentum);
  expect_near(checkpoint("whole", 8), checkpoint("alone", 8));
  // One process continues what two have begun.
  train(1, "replicated", "parts", 9, momentum);
  train(1, "replicated", "alone", 9, momentum);
  expect_near(checkpoint("parts", 9), checkpoint("alone", 9));
}

TEST_F(MpirunTraining, WhatAnUpdateCarriesIsRestoredOnEveryRank) {
  for (const char* const update :
       {"replicated:consistency=relaxed", "parameter_server:staged=true"}) {
    const std::string whole = std::string("whole-") + update,
                      parts = std::string("parts-") + update;
    train(2, update, whole, 6, {"--optimizer=adam"});
    train(2, update, parts, 2, {"--optimizer=adam"});
    train(2, update, parts, 6, {"--optimizer=adam"});
    ASSERT_FALSE(checkpoint(whole, 6).empty()) << update;
    EXPECT_EQ(checkpoint(parts, 6), checkpoint(whole, 6)) << update;
  }
}

TEST_F(MpirunTraining, TfCnnBenchmarksAllReducesGiveTheWeightsOfReplicatedAndSayHowTheyDiffer) {
  train(2, "replicated", "replicated", 6, {"--optimizer=momentum"});
  ASSERT_FALSE(checkpoint("replicated", 6).empty());
  for (const std::string update : {"distributed_all_reduce", "collective_all_reduce"}) {
    const Json result = train(2, update, update, 6, {"--optimizer=momentum"});
    EXPECT_EQ(result["config"]["variable_update"], update);
    int notes = 0;
    for (const Json& note : result["notes"]) {
      const auto text = note.get<std::string>();
      if (text.starts_with(update + ": ") && says(text, "in tf_cnn_benchmarks")) ++notes;
    }
    EXPECT_EQ(notes, 1) << result["notes"];
    expect_near(checkpoint(update, 6), checkpoint("replicated", 6), 0);
  }
}

TEST_F(MpirunTraining, EvaluatesAsOneProcessAndStopsAllRanksAtAnAccuracy) {
  const Words goal{"--init-learning-rate=0.001", "--eval-during-training-every-n-steps=3",
                   "--stop-at-top-1-accuracy=0.9", "--save-model-steps=4"};
  const Json alone = train(1, "replicated", "alone", 200, goal),
             ranks = train(2, "replicated", "ranks", 200, goal);
  ASSERT_GE(alone["evaluations"].size(), 2U);
  ASSERT_EQ(ranks["evaluations"].size(), alone["evaluations"].size());
  for (std::size_t i = 0; i < alone["evaluations"].size(); ++i) {
    for (const char* const key : {"step", "images", "top_1_accuracy", "top_5_accuracy"}) {
      EXPECT_EQ(ranks["evaluations"][i][key], alone["evaluations"][i][key]) << i << " " << key;
    }
  }
  const Json& last = ranks["evaluations"].back();
  EXPECT_GE(last["top_1_accuracy"], 0.9);
  EXPECT_LT(ranks["step_ms"].size(), 200U);
  EXPECT_EQ(ranks["step_ms"].size(), last["step"].get<std::size_t>()) << "all ranks have stopped";
  EXPECT_EQ(ranks["ranks"].size(), 2U);
  const int step = last["step"];
  EXPECT_FALSE(checkpoint("ranks", step).empty()) << "the last step is saved";
  // The checkpoint, evaluated by two processes without training.
  const Json evaluated = train(2, "replicated", "ranks", 200, {"--eval"});
  ASSERT_EQ(evaluated["evaluations"].size(), 1U);
  EXPECT_EQ(evaluated["evaluations"][0]["step"], step);
  EXPECT_EQ(evaluated["evaluations"][0]["top_1_accuracy"], last["top_1_accuracy"]);
}

TEST_F(MpirunTraining, ACheckpointThatDoesNotFitEndsAllRanksByName) {
  train(2, "replicated", "a", 2);
  const std::string path = checkpoint_path(folder("a"), 2);
  const auto refused = [&](const std::string& why, const Words& more) {
    const Words words = joined(data(), {"--train-dir=" + folder("a")});
    start(joined({"mpirun", "-np", "2"}, rank_of(rank("replicated", joined(words, more)))));
    await_end();
    EXPECT_FALSE(lines_with(why).empty()) << why;
    EXPECT_FALSE(lines_with(path).empty()) << why;
    EXPECT_TRUE(lines_with("was lost").empty()) << why;
  };
  refused("of the optimizer sgd, and this run of adam", {"--optimizer=adam"});
  std::string text = checkpoint("a", 2);
  text.back() = static_cast<char>(text.back() ^ 1);
  std::ofstream(path, std::ios::binary) << text;
  refused("is damaged", {});
}

/// The other ranks wait longer than --timeout, because rank 0 is alive.
TEST_F(MpirunUpdates, AnEvaluationMayTakeLongerThanTheTimeout) {
  start(joined({"mpirun", "-np", "2"},
               rank_of(training({"--batch-size=4", "--num-batches=4", "--timeout=3s",
                                 "--num-eval-batches=10", "--eval-during-training-every-n-steps=2",
                                 "--eval-batch-size=16", "--device=emulated:img_per_s=40"}))));
  ASSERT_TRUE(await_end());
  EXPECT_EQ(exit_.code, 0) << content_of(left_by(0, "err"));
  const Json saved = Json::parse(content_of(result()), nullptr, false);
  ASSERT_EQ(saved["evaluations"].size(), 2U);
  EXPECT_GT(saved["evaluations"][0]["seconds"], 3.5);
  EXPECT_EQ(saved["step_ms"].size(), 4U);
}

TEST_F(MpirunUpdates, HorovodHasOneDeviceInEachProcess) {
  const ChildExit exit = exit_of(2, rank("horovod", {"--num-gpus=2", "--num-batches=5"}));
  EXPECT_EQ(exit.code, 2);
  EXPECT_TRUE(says(exit.last_words, "use replicated"));
}

TEST_F(MpirunUpdates, APeerThatStandsStillIsNamed) {
  start(joined(
      {"mpirun", "-np", "2"},
      rank_of(training({"--model=trivial_cifar10", "--image-size=8", "--batch-size=2",
                        "--num-batches=100000", "--timeout=4s", "--device=emulated:img_per_s=400"},
                       "async-sgd"))));
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
