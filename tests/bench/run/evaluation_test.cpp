// SPDX-License-Identifier: Apache-2.0
// Evaluation during training, with a small model and device.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/bench/run/simulated_run.h"
#include "tests/support/training_fixture.h"

namespace penstock {
namespace {

class Evaluation : public TrainingFixture {
 protected:
  static constexpr int kEvaluated = 13;  // not a multiple of any batch size

  Evaluation() {
    write_coloured_images(folder_, "data/val", 1, kEvaluated);
    for (int c = 1; c < kClasses; ++c) {
      std::filesystem::create_directories(folder_ / ("data/val/class" + std::to_string(c)));
    }
  }
};

/// Records one line for each call of a listener.
class Script final : public RunListener {
 public:
  void window_begins() override { lines += "window\n"; }
  void step(const StepReport& step) override { lines += std::to_string(step.index) + " "; }
  void evaluation_begins(std::int64_t step) override {
    lines += "evaluate " + std::to_string(step) + ": ";
  }
  void evaluation_step(std::size_t, double images, double) override {
    lines += std::to_string(static_cast<int>(images)) + " ";
  }
  void evaluated(const EvaluationReport& report) override {
    lines += "of " + std::to_string(report.images) + "\n";
  }
  std::string lines;
};

TEST_F(Evaluation, TakesEveryImageOnceBetweenTwoSteps) {
  config_.eval_during_training_every_n_steps = 2;
  config_.num_batches = 5;
  Script script;
  const RunResult result = completed(run(script));
  EXPECT_EQ(script.lines, "window\n0 1 evaluate 2: 8 5 of 13\n2 3 evaluate 4: 8 5 of 13\n4 ");
  EXPECT_EQ(result.step_ms.size(), 5U);
  ASSERT_EQ(result.evaluations.size(), 2U);
  EXPECT_EQ(result.evaluations[1].step, 4);
  EXPECT_EQ(result.evaluations[1].images, kEvaluated);
  EXPECT_EQ(result.evaluations[1].top5, 1);
}

TEST_F(Evaluation, StepsCountFromTheEndOfWarmUp) {
  config_.num_warmup_batches = 3;
  config_.eval_during_training_at_specified_steps = "5,2";
  config_.num_batches = 5;
  Script script;
  const RunResult result = run(script);
  EXPECT_EQ(script.lines, "window\n0 1 evaluate 5: 8 5 of 13\n2 3 4 evaluate 8: 8 5 of 13\n");
  EXPECT_EQ(result.discarded_steps, 3);
}

TEST_F(Evaluation, NotesAboutItsImagesComeOnce) {
  config_.fake_location = "queue:source=memory";
  config_.eval_during_training_every_n_steps = 2;
  config_.num_batches = 6;
  const RunResult result = run();
  ASSERT_EQ(result.evaluations.size(), 3U) << result.reason;
  const auto holds_them = [](const std::string& note) { return says(note, "holds 13 of 13"); };
  EXPECT_EQ(std::ranges::count_if(result.notes, holds_them), 1);
  const auto note = std::ranges::find_if(result.notes, holds_them);
  EXPECT_TRUE(note->starts_with("evaluation: the source memory")) << *note;
}

TEST_F(Evaluation, ItsBatchesMayBeOfAnotherSize) {
  config_.eval_data_dir = config_.data_dir;  // of all classes
  config_.eval_during_training_every_n_steps = 1;
  config_.num_batches = 6;
  const RunResult as_training = run();
  config_.eval_batch_size = 12;
  Script script;
  const RunResult other = completed(run(script));
  EXPECT_TRUE(says(script.lines, "12 12 12 4 of 40"));
  ASSERT_EQ(other.evaluations.size(), 6U);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(other.evaluations[i].top1, as_training.evaluations.at(i).top1) << i;
  }
}

TEST_F(Evaluation, ALearnedSetIsRecognised) {
  config_.num_epochs = 12;
  config_.eval_during_training_every_n_epochs = 4;
  const RunResult result = run();
  ASSERT_EQ(result.evaluations.size(), 3U);
  EXPECT_EQ(result.step_ms.size(), 60U) << "12 epochs of 40 images in batches of 8";
  EXPECT_EQ(result.config.num_batches, 60);
  EXPECT_GT(result.evaluations.back().top1, 0.9);
}

TEST_F(Evaluation, TrainingStopsAtTheAccuracyThatWasAskedFor) {
  config_.num_epochs = 100;
  config_.eval_during_training_every_n_epochs = 2;
  config_.stop_at_top_1_accuracy = 0.9;
  const RunResult result = completed(run());
  EXPECT_GE(result.evaluations.back().top1, 0.9);
  EXPECT_EQ(static_cast<std::int64_t>(result.step_ms.size()), result.evaluations.back().step);
  EXPECT_LT(result.step_ms.size(), 500U);
  EXPECT_TRUE(notes(result, "has reached 0.9"));
}

TEST_F(Evaluation, DoesNotDisturbTraining) {
  const RunResult without = run();
  config_.eval_during_training_every_n_steps = 3;
  EXPECT_EQ(run().losses, without.losses);
}

TEST_F(Evaluation, TwoRanksWaitForIt) {
  config_.num_gpus = 2;
  config_.eval_during_training_every_n_steps = 2;
  config_.num_batches = 4;
  for (const char* update : {"replicated", "independent", "parameter_server"}) {
    config_.variable_update = update;
    const RunResult result = completed(run());
    EXPECT_EQ(result.evaluations.size(), 2U) << update;
    const bool differs = std::string(update) == "independent";
    EXPECT_EQ(notes(result, "evaluations show the first device's weights"), differs) << update;
  }
}

TEST_F(Evaluation, AnEndlessFeederIsEvaluatedForTheBatchesThatWereAskedFor) {
  config_.fake_location = "gpu";
  config_.eval_during_training_every_n_steps = 10;
  config_.num_eval_batches = 3;
  Script script;
  const RunResult result = completed(run(script));
  EXPECT_EQ(result.evaluations.at(1).images, 24);
  config_.num_epochs = 2;
  EXPECT_TRUE(says(refusal(), "the feeder 'gpu' has no number of examples"));
}

TEST_F(Evaluation, PassesMayBePartsOrMultiples) {
  config_.eval_during_training_every_n_steps = 20;
  config_.num_eval_epochs = 2;
  EXPECT_EQ(run().evaluations.at(0).images, 2 * kEvaluated);
  config_.num_eval_epochs = 0.5;
  EXPECT_EQ(run().evaluations.at(0).images, 8);
}

TEST_F(Evaluation, ADamagedImageFailsTheRunByName) {
  folder_.write("data/val/class3/bad.JPEG", std::vector<std::byte>(10));
  config_.eval_during_training_every_n_steps = 2;
  const RunResult result = run();
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_TRUE(says(result.reason, "bad.JPEG"));
  EXPECT_EQ(result.step_ms.size(), 2U);
}

TEST_F(Evaluation, AMissingSetIsRefusedBeforeTheRun) {
  config_.eval_during_training_every_n_steps = 2;
  config_.data_dir = (folder_ / "data/val").string();
  EXPECT_TRUE(says(refusal(), "state --eval-data-dir"));
  config_.eval_data_dir = (folder_ / "data/val").string();
  EXPECT_EQ(refusal(), "accepted");
}

TEST_F(Evaluation, AStopWhileItRunsEndsTheRun) {
  struct StopInside final : RunListener {
    void evaluation_begins(std::int64_t) override { source.request_stop(); }
    std::stop_source source;
  } listener;
  config_.fake_location = "gpu";
  config_.eval_during_training_every_n_steps = 2;
  config_.num_eval_batches = 200'000;
  const RunResult result = run(listener, listener.source.get_token());
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_TRUE(result.evaluations.empty());
  EXPECT_EQ(result.step_ms.size(), 2U);
}

}  // namespace
}  // namespace penstock
