// SPDX-License-Identifier: Apache-2.0
// Checkpoints and resumed runs, with a small model and device.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>

#include "tests/bench/run/simulated_run.h"
#include "tests/support/text_files.h"
#include "tests/support/training_fixture.h"
#include "tests/support/virtual_clock.h"
#include "trainer/checkpoint.h"
#include "trainer/safetensors.h"

namespace penstock {
namespace {

using Steps = std::vector<std::int64_t>;

class Checkpoints : public TrainingFixture {
 protected:
  Checkpoints() {
    config_.fake_location = "queue";  // random crops and flips
    config_.optimizer = "momentum";
    config_.num_batches = 23;  // within an epoch
    config_.train_dir = folder("a");
  }
  std::string folder(const std::string& name) const { return (folder_ / name).string(); }
  std::string file(const std::string& name, int step) const {
    return read_text(checkpoint_path(folder(name), step));
  }
  /// Trains up to `steps` steps in this folder, or resumes there.
  RunResult train(const std::string& name, std::int64_t steps) {
    config_.train_dir = folder(name);
    config_.num_batches = steps;
    return completed(run());
  }
  /// Changes a checkpoint of 4 steps in "a" by `change`; returns why a resumed run then refuses it.
  template <typename Change>
  std::string refusal_after(Change change) {
    train("a", 4);
    std::string text = file("a", 4);
    change(text);
    write_text(checkpoint_path(folder("a"), 4), text);
    const auto before = files_below(folder("a"));
    const std::string reason = refusal();
    EXPECT_EQ(files_below(folder("a")), before) << "something was changed";
    return reason;
  }
};

/// A clock that stands still after some thousand readings until the stop is requested: a run on it
/// cannot end before, however late the listener's thread gets a core.
class ClockUntilStop final : public Clock {
 public:
  explicit ClockUntilStop(std::stop_token stop) : stop_(std::move(stop)) {}
  Time now() const override {
    if (++readings_ > 20'000) {
      std::mutex mutex;
      std::unique_lock lock(mutex);
      std::condition_variable_any().wait(lock, stop_, [] { return false; });
    }
    return clock_.now();
  }
  void sleep_until(Time deadline, std::stop_token stop) override {
    clock_.sleep_until(deadline, std::move(stop));
  }
  void wake(Gate& gate) override { clock_.wake(gate); }

 protected:
  bool wait_for_condition(std::unique_lock<std::mutex>& lock, Gate& gate, std::stop_token stop,
                          Condition ready) override {
    return clock_.wait(lock, gate, std::move(stop), ready);
  }

 private:
  SteadyClock clock_;
  const std::stop_token stop_;
  mutable std::atomic<int> readings_{0};
};

TEST_F(Checkpoints, GoingOnEqualsNeverHavingStopped) {
  for (const char* optimizer : {"sgd", "momentum", "rmsprop", "adam", "lars"}) {
    config_.optimizer = optimizer;
    const std::string whole = std::string("whole-") + optimizer;
    const std::string parts = std::string("parts-") + optimizer;
    const RunResult never_stopped = train(whole, 23);
    std::vector<double> losses = train(parts, 7).losses;
    for (const std::int64_t steps : {8, 23}) {
      const RunResult more = train(parts, steps);
      losses.insert(losses.end(), more.losses.begin(), more.losses.end());
    }
    EXPECT_EQ(losses, never_stopped.losses) << optimizer;
    EXPECT_EQ(file(parts, 23), file(whole, 23)) << optimizer;
  }
}

TEST_F(Checkpoints, TheSameOverTwoRanks) {
  config_.num_gpus = 2;
  config_.batch_size = 4;
  for (const char* update : {"replicated", "parameter_server", "replicated:consistency=relaxed",
                             "parameter_server:staged=true"}) {
    config_.variable_update = update;
    train(std::string("whole-") + update, 13);
    train(std::string("parts-") + update, 6);
    train(std::string("parts-") + update, 13);
    // Running statistics are rank 0's after a restart; weights do not depend on them.
    EXPECT_EQ(file(std::string("parts-") + update, 13).size(),
              file(std::string("whole-") + update, 13).size());
    const auto losses = [&](const std::string& name) {
      config_.train_dir = folder(name + update);
      config_.num_batches = 14;
      return run().losses;
    };
    EXPECT_EQ(losses("parts-"), losses("whole-")) << update;
  }
}

TEST_F(Checkpoints, AreOfTheWeightsAfterTheirStepsWhateverASteppedDeviceReads) {
  const auto tensors_after_one_step = [&](const char* update) {
    config_.variable_update = update;
    train(update, 1);
    const std::string text = file(update, 1);
    const auto bytes = std::as_bytes(std::span(text));
    const SafeTensors parsed = parse_safetensors(bytes);
    std::map<std::string, std::vector<std::byte>> tensors;
    for (const SafeTensor& tensor : parsed.tensors) {
      tensors[tensor.name].assign(tensor.data.begin(), tensor.data.end());
    }
    return tensors;
  };
  const auto newest = tensors_after_one_step("parameter_server"),
             staged = tensors_after_one_step("parameter_server:staged=true");
  EXPECT_GT(staged.size(), newest.size()) << "what the next step reads is kept beside them";
  for (const auto& [name, content] : newest) {
    ASSERT_TRUE(staged.contains(name)) << name;
    EXPECT_EQ(staged.at(name), content) << name;
  }
}

TEST_F(Checkpoints, ARunThatCannotGoOnExactlySaysSo) {
  config_.num_gpus = 2;
  config_.batch_size = 4;
  const auto says_so = [&](const std::string& name, std::int64_t steps) {
    const RunResult result = train(name, steps);
    return notes(result, "is not identical to an uninterrupted one");
  };
  for (const char* update : {"sma", "independent", "async-sgd"}) {
    config_.variable_update = update;
    EXPECT_FALSE(says_so(update, 3)) << update << " from step 0";
    EXPECT_TRUE(says_so(update, 5)) << update;
  }
  config_.variable_update = "replicated";
  EXPECT_FALSE(says_so("replicated", 3));
  EXPECT_FALSE(says_so("replicated", 5));
  config_.variable_update = "replicated:consistency=relaxed";
  EXPECT_TRUE(says_so("replicated", 7)) << "no gradients of a step before";
  config_.num_gpus = 1;
  config_.variable_update = "sma";
  train("alone", 3);
  EXPECT_FALSE(says_so("alone", 5)) << "one device has all weights";
}

TEST_F(Checkpoints, SpreadHomesDoNotSaveAPartOfWhatTheirUpdateCarries) {
  config_.num_gpus = 2;
  config_.optimizer = "sgd";
  config_.variable_update = "parameter_server:placement=greedy";
  EXPECT_EQ(refusal(), "accepted");
  config_.variable_update = "parameter_server:placement=greedy,staged=true";
  EXPECT_TRUE(says(refusal(), "only a part of the state of the update"));
}

TEST_F(Checkpoints, AStopFromOutsideSavesWholeStepsAndTheRunGoesOn) {
  for (const std::int32_t ranks : {1, 2}) {
    config_.num_gpus = ranks;
    config_.train_dir = folder("stopped" + std::to_string(ranks));
    config_.num_batches = 100'000;
    config_.device = device_;
    StopAfter listener(5);
    ClockUntilStop clock(listener.source.get_token());
    const RunResult stopped =
        Runner(config_, clock, components()).run(listener, listener.source.get_token());
    EXPECT_EQ(stopped.exit_code, 130);
    const Steps steps = list_checkpoints(config_.train_dir);
    if (ranks == 2 && steps.empty()) {
      EXPECT_TRUE(notes(stopped, "ranks stopped within a step"));
      continue;
    }
    ASSERT_EQ(steps.size(), 1U);
    EXPECT_GE(steps[0], 5);
    if (ranks == 2) continue;
    EXPECT_EQ(steps[0], static_cast<std::int64_t>(stopped.step_ms.size()));
    const auto last = static_cast<int>(steps[0]) + 20;
    config_.num_batches = last;
    const RunResult rest = run();
    std::vector<double> losses = stopped.losses;
    losses.insert(losses.end(), rest.losses.begin(), rest.losses.end());
    EXPECT_EQ(losses, train("whole", last).losses);
    EXPECT_EQ(file("stopped1", last), file("whole", last));
  }
}

TEST_F(Checkpoints, AreSavedEverySoManyStepsAndTheNewestAreKept) {
  config_.save_model_steps = 4;
  config_.max_ckpts_to_keep = 3;
  train("a", 23);
  EXPECT_EQ(list_checkpoints(folder("a")), (Steps{16, 20, 23}));
  EXPECT_EQ(files_below(folder("a")).size(), 3U) << "nothing else is left behind";
  config_.max_ckpts_to_keep = 0;
  train("b", 23);
  EXPECT_EQ(list_checkpoints(folder("b")), (Steps{4, 8, 12, 16, 20, 23}));
}

TEST_F(Checkpoints, SavingDoesNotDisturbTraining) {
  const RunResult without = train("a", 23);
  config_.save_model_steps = 2;
  EXPECT_EQ(train("b", 23).losses, without.losses);
}

TEST_F(Checkpoints, AreSavedEverySoManySeconds) {
  VirtualClock clock;
  RunListener silent;
  config_.fake_location = "gpu";
  config_.save_model_secs = 0.03;
  config_.max_ckpts_to_keep = 0;
  config_.num_batches = 100;  // one millisecond each
  config_.device = "tiny";
  const RunResult result = completed(Runner(config_, clock, components()).run(silent, {}));
  EXPECT_EQ(list_checkpoints(folder("a")), (Steps{30, 60, 90, 100}));
  EXPECT_NEAR(result.window_s, 0.1, 1e-9) << "pauses count for nothing";
}

TEST_F(Checkpoints, WarmUpIsTrainedOnceAndTheTableGoesOnWhereItWas) {
  config_.num_warmup_batches = 3;
  EXPECT_EQ(train("a", 10).step_ms.size(), 10U);
  EXPECT_EQ(list_checkpoints(folder("a")), Steps{13});
  const RunResult more = train("a", 20);
  EXPECT_EQ(more.discarded_steps, 3);
  EXPECT_EQ(more.step_ms.size(), 7U);
  EXPECT_EQ(list_checkpoints(folder("a")), (Steps{13, 23}));
}

TEST_F(Checkpoints, ARunThatIsCompleteSaysSo) {
  train("a", 5);
  const std::string before = file("a", 5);
  const RunResult again = train("a", 5);
  EXPECT_TRUE(again.step_ms.empty());
  EXPECT_TRUE(notes(again, "nothing is left to train"));
  EXPECT_EQ(file("a", 5), before);
}

TEST_F(Checkpoints, TheNewestIsEvaluatedWithoutTraining) {
  write_coloured_images(folder_, "data/val", kClasses, 3);
  config_.fake_location = "queue:crop=full";
  config_.eval_during_training_at_specified_steps = "60";
  const RunResult trained = train("a", 60);
  config_.eval_during_training_at_specified_steps.clear();
  config_.eval = true;
  config_.optimizer = "sgd";  // irrelevant
  const RunResult evaluated = completed(run());
  ASSERT_EQ(evaluated.evaluations.size(), 1U);
  EXPECT_EQ(evaluated.evaluations[0].step, 60);
  EXPECT_EQ(evaluated.evaluations[0].images, 12);
  EXPECT_EQ(evaluated.evaluations[0].top1, trained.evaluations.at(0).top1);
  EXPECT_GT(evaluated.img_per_s, 0);
  EXPECT_TRUE(evaluated.step_ms.empty());
  config_.train_dir = folder("none");
  EXPECT_TRUE(says(refusal(), "there is no checkpoint in --train-dir"));
}

TEST_F(Checkpoints, AnEvaluationCropsAndFlipsNothingAtRandom) {
  constexpr int kImages = 100;
  for (int i = 0; i < kImages; ++i) {
    folder_.write(fmt::format("data/val/class{}/{}.JPEG", i % kClasses, i),
                  encode_jpeg(make_test_image(24, 20, 3, static_cast<std::uint64_t>(i))));
  }
  train("a", 5);
  config_.fake_location = "queue";  // its training images are cropped and flipped
  config_.eval = true;
  std::set<double> accuracies;
  for (const std::uint64_t seed : {1, 2, 3, 4}) {
    config_.seed = seed;
    const RunResult evaluated = completed(run());
    accuracies.insert(evaluated.evaluations.at(0).top1);
  }
  EXPECT_EQ(accuracies.size(), 1U);
}

TEST_F(Checkpoints, DamagedOnesAreRefusedByName) {
  const std::string path = checkpoint_path(folder("a"), 4).string();
  const std::string flipped =
      refusal_after([](std::string& text) { text.back() = static_cast<char>(text.back() ^ 1); });
  EXPECT_TRUE(says(flipped, "the checkpoint '" + path + "' is damaged"));
  EXPECT_TRUE(says(flipped, "checksum"));
  EXPECT_TRUE(says(flipped, "state another --train-dir"));
  std::filesystem::remove_all(folder("a"));
  const std::string cut = refusal_after([](std::string& text) { text.resize(text.size() / 2); });
  EXPECT_TRUE(says(cut, "is damaged"));
}

TEST_F(Checkpoints, NewerVersionsAndOtherFilesAreRefused) {
  const auto replace = [](std::string from, std::string to) {
    return [=](std::string& text) {
      ASSERT_EQ(from.size(), to.size());
      text.replace(text.find(from), from.size(), to);
    };
  };
  const std::string newer = refusal_after(replace(R"("version":"1")", R"("version":"2")"));
  EXPECT_TRUE(says(newer, "it is of version 2, but this program supports 1"));
  std::filesystem::remove_all(folder("a"));
  const std::string other = refusal_after(replace(R"("penstock")", R"("pensieve")"));
  EXPECT_TRUE(says(other, "not a checkpoint of penstock"));
}

TEST_F(Checkpoints, CheckpointsOfOtherTrainersAreRefusedWithAnAdvice) {
  train("a", 4);
  const auto before = files_below(folder("a"));
  const RunConfig fitting = config_;
  config_.optimizer = "adam";
  EXPECT_TRUE(says(refusal(), "of the optimizer momentum, and this run of adam"));
  EXPECT_TRUE(says(refusal(), "pass --optimizer momentum"));
  config_ = fitting;
  config_.classes = 9;
  EXPECT_TRUE(says(refusal(), "pass --classes 4"));
  config_ = fitting;
  config_.image_size = 16;
  EXPECT_TRUE(says(refusal(), "of images of 8x8x3, and this run of 16x16x3"));
  EXPECT_EQ(files_below(folder("a")), before);
}

TEST_F(Checkpoints, FlagsWithoutAFolderAreRefused) {
  config_.train_dir.clear();
  config_.save_model_steps = 5;
  EXPECT_TRUE(says(refusal(), "state --train-dir"));
  config_.save_model_secs = 5;
  EXPECT_TRUE(says(refusal(), "exclude each other"));
  config_.save_model_secs = 0;
  folder_.write("file", {std::byte{1}});
  config_.train_dir = folder("file") + "/below";
  EXPECT_TRUE(says(refusal(), "which is not writable"));
}

TEST_F(Checkpoints, AFailedSaveFailsTheRunAndKeepsWhatWasThere) {
  train("a", 4);
  const auto before = files_below(folder("a"));
  // A folder with the name of the next checkpoint.
  std::filesystem::create_directories(checkpoint_path(folder("a"), 6) / "x");
  config_.num_batches = 6;
  std::filesystem::rename(checkpoint_path(folder("a"), 6), folder_ / "aside");
  config_.device = device_;
  Runner runner(config_, clock_, components());
  std::filesystem::rename(folder_ / "aside", checkpoint_path(folder("a"), 6));
  RunListener silent;
  const RunResult result = runner.run(silent, {});
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_TRUE(says(result.reason, "cannot write '" + folder("a")));
  EXPECT_TRUE(says(result.reason, "state another --train-dir"));
  EXPECT_EQ(files_below(folder("a")), before);
}

}  // namespace
}  // namespace penstock
