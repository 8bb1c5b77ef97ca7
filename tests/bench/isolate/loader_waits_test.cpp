// SPDX-License-Identifier: Apache-2.0
// Why a loop waits for a loader: its runs are made up, so the cause is known.
#include "bench/isolate/loader_waits.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "bench/isolate/isolate_plan.h"
#include "bench/isolate/predictions.h"
#include "bench/isolate/verdict.h"
#include "tests/bench/isolate/isolation_fixture.h"
#include "tests/support/thrown_by.h"

namespace penstock::isolate {
namespace {

constexpr double kImages = 128, kStarvedMs = 24.9;

/// Steps of 35.84 ms on the device, which wait 24.9 ms on average.
struct LoaderWaitsOf : testing::Test {
  LoaderWaitsOf() {
    for (Repetition& repetition : coupled().repetitions) repetition.result.facts.clear();
    coupled().config.fake_location = "python:loader='train.py:loader'";
    plan_.config = coupled().config;
    plan_.has_loader = true;
    plan_.cores = 8;
    found_.delivery.reset();
    set_stages(1200, 0);
  }
  Row& coupled() { return found_.measurement.sweep.rows[1]; }
  void set_fact(const std::string& name, double value) {
    for (Repetition& repetition : coupled().repetitions) repetition.result.facts[name] = value;
  }
  /// Workers load for so long; the process that asks for batches takes so long itself.
  void set_stages(double load_us, double next_us) {
    found_.diagnosis.bottleneck.reset();
    found_.diagnosis.stages = {{.name = "load",
                                .workers = "loader workers",
                                .role = StageRole::loads,
                                .threads = 2,
                                .wall_us_per_image = load_us},
                               {.name = "next(loader)",
                                .workers = "loader",
                                .role = StageRole::asks,
                                .threads = 1,
                                .wall_us_per_image = next_us}};
  }
  WaitCause cause() {
    found_.waits = find_waits(found_);
    return found_.waits.cause;
  }
  /// The changes that are recommended, in order.
  std::vector<std::string> changes() {
    std::vector<std::string> changes;
    for (const Recommendation& each : predict(found_, plan_).recommendations) {
      changes.push_back(each.change);
    }
    return changes;
  }
  std::string verdict() { return verdict_of(found_, plan_).front(); }

  Isolation found_ = make_isolation();
  IsolatePlan plan_;
};

TEST_F(LoaderWaitsOf, ALoaderThatMakesFewerBatchesHasTooMuchWork) {
  EXPECT_EQ(cause(), WaitCause::work);
  EXPECT_EQ(subject_of(found_.waits.cause), "");
}

TEST_F(LoaderWaitsOf, AFastLoaderWithAFewLongWaitsIsUneven) {
  found_.supply_img_per_s = statistics::Estimate{4000, 3990, 4010, 5};
  for (Repetition& repetition : coupled().repetitions) {
    std::vector<double>& waits = repetition.result.starved_ms;
    for (std::size_t step = 0; step < waits.size(); ++step) waits[step] = step % 8 == 0 ? 199.2 : 0;
  }
  set_fact("loader_num_workers", 2);
  set_fact("loader_prefetch_factor", 2);
  set_fact("loader_in_order", 1);
  ASSERT_EQ(cause(), WaitCause::uneven);
  EXPECT_NEAR(found_.waits.spread.late_ms, 199.2, 0.1);
  EXPECT_NEAR(found_.waits.spread.late_percent, 80.0 / 8, 0.5);
  EXPECT_TRUE(says(verdict(), "Uneven loading is the bottleneck")) << verdict();
  EXPECT_EQ(changes(), (std::vector<std::string>{"prefetch_factor=14", "in_order=False"}));
  EXPECT_FALSE(says(sentence_of(found_.waits), "stay behind"));
  set_fact("loader_held_back_percent", 83);
  ASSERT_EQ(cause(), WaitCause::uneven);
  EXPECT_EQ(changes(), (std::vector<std::string>{"in_order=False", "prefetch_factor=14"}));
  EXPECT_TRUE(says(sentence_of(found_.waits),
                   "in 83 % of the time in which a batch was waited for, a later one was ready and "
                   "had to stay behind it"))
      << sentence_of(found_.waits);
}

TEST_F(LoaderWaitsOf, ManyArraysOfABatchAreNamedIfTakingThemIsTheBottleneck) {
  set_stages(100, 700);
  found_.diagnosis.bottleneck = 1;
  found_.diagnosis.gain_until_next = 1.7;
  set_fact("loader_num_workers", 2);
  set_fact("loader_arrays_per_batch", 640);
  ASSERT_EQ(cause(), WaitCause::work);
  found_.traits = find_traits(coupled());
  EXPECT_TRUE(says(verdict(), "Taking 640 arrays a batch from the workers is the bottleneck"));
  EXPECT_TRUE(says(trait_sentences(found_).at(0), "takes 90 ms of the process that asks"))
      << trait_sentences(found_).at(0);
  EXPECT_TRUE(says(predict(found_, plan_).recommendations.front().text,
                   "packing the 640 arrays of a batch into few"));
  set_fact("loader_arrays_per_batch", 4);
  found_.traits = find_traits(coupled());
  EXPECT_FALSE(says(verdict(), "arrays"));
  EXPECT_EQ(trait_sentences(found_).size(), 0U);
}

TEST_F(LoaderWaitsOf, PaddingAndAPickledDataSetAreNamed) {
  set_fact("loader_num_workers", 2);
  set_fact("loader_persistent_workers", 0);
  set_fact("loader_padding_percent: batch.mask", 60);
  set_fact("loader_pickled_bytes_per_worker", 2e8);
  set_fact("loader_pickling_ms_per_worker", 553);
  static_cast<void>(cause());
  found_.traits = find_traits(coupled());
  const std::vector<std::string> sentences = trait_sentences(found_);
  ASSERT_EQ(sentences.size(), 2U);
  EXPECT_TRUE(says(sentences[0], "60 % of the positions of 'batch.mask' are padding"));
  EXPECT_TRUE(says(sentences[0], "up to 2.5 times smaller")) << sentences[0];
  EXPECT_TRUE(says(sentences[1], "200 MB, which takes 553 ms to write")) << sentences[1];
  EXPECT_TRUE(says(sentences[1], "in each of 2 workers, again in each epoch")) << sentences[1];
}

TEST_F(LoaderWaitsOf, WorkersThatEndWithEachEpochShouldPersist) {
  found_.epochs = {
      .steps_per_epoch = 10, .seen = 30, .steady_ms = 36, .longer_ms = 10 * kStarvedMs};
  set_fact("loader_num_workers", 2);
  set_fact("loader_persistent_workers", 0);
  ASSERT_EQ(cause(), WaitCause::edges);
  EXPECT_TRUE(says(verdict(), "The first batch of each epoch is the bottleneck")) << verdict();
  EXPECT_TRUE(says(sentence_of(found_.waits), "start anew"));
  EXPECT_EQ(changes(), std::vector<std::string>{"persistent_workers=True"});
  set_fact("loader_persistent_workers", 1);
  ASSERT_EQ(cause(), WaitCause::edges);
  EXPECT_FALSE(says(sentence_of(found_.waits), "start anew"));
  EXPECT_EQ(changes(), std::vector<std::string>{""}) << "a remedy that no setting brings";
  found_.epochs.longer_ms = 4 * kStarvedMs;  // over ten steps, less than half of the waits
  EXPECT_NE(cause(), WaitCause::edges);
}

TEST_F(LoaderWaitsOf, ALoaderThatWorksBetweenStepsShouldWorkMeanwhile) {
  found_.supply_img_per_s = statistics::Estimate{1e3 * kImages / kStarvedMs, 0, 0, 5};
  set_stages(0, 1e3 * kStarvedMs / kImages);
  ASSERT_EQ(cause(), WaitCause::in_turn);
  EXPECT_TRUE(says(verdict(), "Loading a batch between two steps is the bottleneck")) << verdict();
  EXPECT_EQ(changes(), std::vector<std::string>{""});
  // Without workers, a DataLoader's samples are loaded there.
  set_stages(0, 0);
  found_.diagnosis.stages[0] = {.name = "load",
                                .workers = "loader",
                                .role = StageRole::loads,
                                .threads = 1,
                                .wall_us_per_image = 1e3 * kStarvedMs / kImages};
  set_fact("loader_num_workers", 0);
  ASSERT_EQ(cause(), WaitCause::in_turn);
  EXPECT_EQ(changes(), std::vector<std::string>{"num_workers=1"});
}

TEST_F(LoaderWaitsOf, WaitsThatGrowInEachRunAreNamed) {
  const auto set_waits = [&](Repetition& repetition, double more_ms) {
    std::vector<double>& waits = repetition.result.starved_ms;
    waits.resize(90);
    for (std::size_t step = 0; step < waits.size(); ++step) {
      waits[step] = 5 + more_ms * static_cast<double>(step);
    }
  };
  for (Repetition& repetition : coupled().repetitions) set_waits(repetition, 0.5);
  ASSERT_EQ(cause(), WaitCause::growing);
  EXPECT_TRUE(says(verdict(), "Loading that becomes slower is the bottleneck")) << verdict();
  EXPECT_EQ(sentence_of(found_.waits),
            "The wait for a batch grows from 12.2 ms at first to 42.2 ms in the end.");
  EXPECT_EQ(changes(), std::vector<std::string>{""});
  set_waits(coupled().repetitions.front(), 0);
  EXPECT_EQ(cause(), WaitCause::work);
}

TEST_F(LoaderWaitsOf, NoWaitIsNamedWithoutACost) {
  found_.cost->verdict = statistics::Verdict::equal;
  EXPECT_EQ(cause(), WaitCause::none);
  found_.cost->verdict = statistics::Verdict::undecided;
  EXPECT_EQ(cause(), WaitCause::none);
}

/// Two workers load for 2 ms an image, and could supply 1,000 img/s. Few slow samples hold the
/// other worker up, so they supply 500.
TEST_F(LoaderWaitsOf, AFewSlowSamplesAreNamedAndWorkersThatTheyHoldUpCountAsTheyAre) {
  set_stages(2000, 0);
  for (const auto& [name, value] : {std::pair("num_workers", 2), {"prefetch_factor", 2}}) {
    set_fact(std::string("loader_") + name, value);
  }
  set_fact("loader_in_order", 1);
  found_.diagnosis.bottleneck = 0;
  found_.diagnosis.gain_until_next = 1.7;
  found_.cost->coupled_img_per_s = {500, 499, 501, 5};
  found_.cost->ceiling_img_per_s = {1200, 1199, 1201, 5};
  found_.supply_img_per_s = statistics::Estimate{500, 499, 501, 5};
  found_.code = CodeProfile{.shares = {{"data.py:3 read()", 90}},
                            .states = {{"sleeping", 95}, {"computing", 5}},
                            .slowest = {{"150", 400}, {"50", 390}, {"7", 2}},
                            .median_sample_ms = 1,
                            .mean_sample_ms = 2,
                            .cost_percent = {}};
  ASSERT_EQ(cause(), WaitCause::work);
  const std::vector<std::string> tried = changes();
  const auto has = [&](const char* change) { return std::ranges::count(tried, change) == 1; };
  EXPECT_TRUE(has("num_workers=5")) << fmt::format("{}", fmt::join(tried, "; "));
  EXPECT_TRUE(has("in_order=False"));
  const std::string sentence = slow_samples_sentence(*found_.code);
  EXPECT_TRUE(says(sentence, "the median one takes 1.0 ms, the mean is 2.0 ms")) << sentence;
  EXPECT_TRUE(says(sentence, "have the indices 150 (400 ms), 50 (390 ms).")) << sentence;
  found_.code->mean_sample_ms = 1.2;
  EXPECT_EQ(slow_samples_sentence(*found_.code), "");
}

TEST_F(LoaderWaitsOf, SamplesThatWaitForAProcessorNameIt) {
  plan_.cores = 2;
  set_fact("loader_num_workers", 8);
  set_fact("samples_core_wait_percent", 90);
  found_.diagnosis.bottleneck = 0;
  found_.diagnosis.gain_until_next = 3;
  ASSERT_EQ(cause(), WaitCause::work);
  EXPECT_TRUE(
      mentions(verdict_of(found_, plan_),
               "Samples wait for a free processor for 90 % of their time: 8 workers share 2 "
               "cores."));
  bool is_remedy = false;
  for (const Recommendation& each : predict(found_, plan_).recommendations) {
    is_remedy = is_remedy || says(each.text, "num_workers=2 do the same work");
  }
  EXPECT_TRUE(is_remedy);
}

TEST_F(LoaderWaitsOf, MoreWorkersAreNoRemedyForALock) {
  set_fact("loader_num_workers", 4);
  found_.diagnosis.bottleneck = 0;
  found_.diagnosis.gain_until_next = 1.7;
  found_.waits.cause = WaitCause::work;
  const auto recommends_workers = [&] {
    for (const std::string& change : changes()) {
      if (change.starts_with("num_workers=")) return true;
    }
    return false;
  };
  found_.code = CodeProfile{.shares = {{"data.py:3 with lock:", 90}},
                            .states = {{"waiting for the network", 80}, {"computing", 20}},
                            .cost_percent = {}};
  EXPECT_TRUE(recommends_workers());
  found_.code->states = {{"waiting for a lock", 80}, {"computing", 20}};
  EXPECT_FALSE(recommends_workers());
  EXPECT_TRUE(says(predict(found_, plan_).recommendations.back().text,
                   "less time under the lock of data.py:3 with lock:"));
  found_.waits.workers = 2;
  found_.code->states = {{"sleeping", 52}, {"waiting for a lock", 46}};
  EXPECT_FALSE(recommends_workers()) << "one of two workers always has the lock";
}

}  // namespace
}  // namespace penstock::isolate
