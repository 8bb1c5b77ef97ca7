// SPDX-License-Identifier: Apache-2.0
#include "bench/analysis/diagnosis.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

constexpr double kWindow = 10;           // s
constexpr std::int64_t kImages = 10000;  // in the window

StageUse stage(const char* name, StageRole role, std::int32_t threads, double wall_s) {
  return {.name = name,
          .workers = "decode threads",
          .role = role,
          .threads = threads,
          .images = kImages,
          .items = kImages,
          .timed_items = kImages,
          .cpu_s = wall_s,
          .wall_s = wall_s};
}

/// Eight threads decode, one at a time reads, and devices starve for half of each step.
Row row_of(double read_s, double decode_s) {
  RunResult result;
  result.config.fake_location = "queue";
  result.images_per_step = 100;
  result.window_s = kWindow;
  result.img_per_s = kImages / kWindow;
  result.step_ms.assign(100, 100);
  result.stages = {stage("read", StageRole::reads_storage, 1, read_s),
                   stage("decode", StageRole::decodes, 8, decode_s)};
  Row row;
  row.repetitions.push_back({0, result});
  return row;
}

analysis::InputCostFinding half_lost() {
  analysis::InputCostFinding cost;
  cost.ceiling_img_per_s.value = 2000;
  cost.coupled_img_per_s.value = 1000;
  cost.percent.value = 50;
  cost.split.starvation_ms.value = 50;
  cost.verdict = statistics::Verdict::slower;
  return cost;
}

analysis::Diagnosis diagnosis_of(const Row& row, bool crowded = false) {
  const analysis::InputCostFinding cost = half_lost();
  return analysis::diagnose({.coupled = row, .cost = cost, .crowded = crowded});
}

TEST(Diagnosis, BlamesReadingWhereOneThreadAtATimeReadsAndIsNeverIdle) {
  const Row row = row_of(9.9, 40);  // 99 % of one thread; all eight are busy 62 % of their time
  const analysis::Diagnosis diagnosis = diagnosis_of(row);
  ASSERT_TRUE(diagnosis.bottleneck);
  EXPECT_EQ(diagnosis.stages[*diagnosis.bottleneck].name, "read");
  EXPECT_NEAR(diagnosis.stages[*diagnosis.bottleneck].busy_percent, 99, 1e-9);
  EXPECT_NEAR(diagnosis.stages[0].capacity_img_per_s, kImages / 9.9, 1e-6);
  EXPECT_NEAR(diagnosis.stages[0].utilisation_percent, 100 * 9.9 / 80, 1e-9);
  // Without reading, eight threads decode 2,000 img/s, which is all that the trainer takes.
  EXPECT_NEAR(diagnosis.gain_until_next, 2, 1e-9);
}

TEST(Diagnosis, BlamesDecodingWhereItsThreadsAreBusierThanTheOneThatReads) {
  const Row row = row_of(5, 72);
  const analysis::Diagnosis diagnosis = diagnosis_of(row);
  ASSERT_TRUE(diagnosis.bottleneck);
  EXPECT_EQ(diagnosis.stages[*diagnosis.bottleneck].name, "decode");
  EXPECT_NEAR(diagnosis.stages[*diagnosis.bottleneck].busy_percent, 100 * 77.0 / 80, 1e-9);
  // Without decoding, one thread reads 2,000 img/s, whatever the others do.
  EXPECT_NEAR(diagnosis.gain_until_next, 2, 1e-9);
}

TEST(Diagnosis, GoesByCpuTimeWhereOthersComputeOnTheSameProcessors) {
  Row row = row_of(9.9, 40);
  row.repetitions.front().result.stages.front().cpu_s = 0.5;  // other processes kept it from
                                                              // running
  const analysis::Diagnosis diagnosis = diagnosis_of(row, true);
  ASSERT_TRUE(diagnosis.bottleneck);
  EXPECT_EQ(diagnosis.stages[*diagnosis.bottleneck].name, "decode");
}

TEST(Diagnosis, PredictsFromComputingAndStorageWhatComesNext) {
  // Reading took 9 s of one thread: 0.7 s computing, the rest waiting for a core.
  Row row = row_of(9, 71);
  RunResult& result = row.repetitions.front().result;
  result.stages[0].cpu_s = 0.7;
  result.facts["waited_for_core_s"] = 8.3;
  const analysis::Diagnosis cached = diagnosis_of(row);
  ASSERT_TRUE(cached.bottleneck);
  EXPECT_EQ(cached.stages[*cached.bottleneck].name, "decode");
  EXPECT_FALSE(cached.next_bottleneck) << "the trainer: reading could do 14,286 img/s";
  EXPECT_NEAR(cached.gain_until_next, 2, 1e-9);
  EXPECT_NEAR(cached.stages[0].capacity_img_per_s, kImages / 0.7, 1e-6);
  EXPECT_EQ(cached.stages[0].storage_us_per_image, 0);
  result.facts["waited_for_core_s"] = 0;  // it waited for storage
  const analysis::Diagnosis cold = diagnosis_of(row);
  ASSERT_TRUE(cold.next_bottleneck);
  EXPECT_EQ(cold.stages[*cold.next_bottleneck].name, "read");
  EXPECT_NEAR(*cold.stages[0].storage_us_per_image, 830, 1e-9);
  EXPECT_NEAR(cold.gain_until_next, 1.111, 1e-3);
  result.stages[1].cpu_s -= 4;
  result.facts["waited_for_core_s"] = 4;  // decoding waited for a core, reading as before
  EXPECT_NEAR(*diagnosis_of(row).stages[0].storage_us_per_image, 830, 1e-9);
}

TEST(Diagnosis, FindsNoStorageInWallTimesThatAreScaledUpTooFar) {
  Row row = row_of(25, 71);  // more than eight threads have in 10 s
  RunResult& result = row.repetitions.front().result;
  result.stages[0].cpu_s = 0.7;
  result.facts["waited_for_core_s"] = 8.3;
  EXPECT_EQ(diagnosis_of(row).stages[0].storage_us_per_image, 0);
}

TEST(Diagnosis, WorkersAreNotBusyForLongerThanTheWindow) {
  Row row = row_of(90, 71);  // 161 s of work, but eight threads have only 80 s
  row.repetitions.front().result.stages[0].cpu_s = 0.7;
  const analysis::Diagnosis diagnosis = diagnosis_of(row);
  double percent = 0;
  for (const analysis::StageFinding& stage : diagnosis.stages) {
    if (stage.workers == diagnosis.stages[0].workers) percent += stage.utilisation_percent;
  }
  EXPECT_NEAR(percent, 100, 1e-9);
}

TEST(Diagnosis, BlamesNothingUnlessTheVerdictIsThatFeedingCosts) {
  const Row row = row_of(5, 72);
  for (const statistics::Verdict verdict :
       {statistics::Verdict::undecided, statistics::Verdict::equal, statistics::Verdict::faster}) {
    analysis::InputCostFinding cost = half_lost();
    cost.verdict = verdict;
    EXPECT_FALSE(analysis::diagnose({.coupled = row, .cost = cost}).bottleneck)
        << to_string(verdict);
  }
}

TEST(Diagnosis, BlamesNoStageWhereAllWorkersAreIdleForMostOfTheTime) {
  const analysis::Diagnosis diagnosis =
      diagnosis_of(row_of(0.1, 8));  // a loader that is limited to a rate
  EXPECT_FALSE(diagnosis.bottleneck);
}

}  // namespace
}  // namespace penstock
