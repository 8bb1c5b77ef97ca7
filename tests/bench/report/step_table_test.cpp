// SPDX-License-Identifier: Apache-2.0
// The console output of tf_cnn_benchmarks, which existing parsers read.
#include "bench/report/step_table.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

TEST(StepTable, HeaderLabelsArePaddedToThirteenColumns) {
  RunConfig config;
  config.num_gpus = 2;
  config.batch_size = 64;
  EXPECT_EQ(report::format_header({config}),
            "Model:       resnet50\n"
            "Dataset:     imagenet (synthetic)\n"
            "Mode:        training\n"
            "SingleSess:  False\n"
            "Batch size:  128 global\n"
            "             64 per device\n"
            "Num batches: 100\n"
            "Num epochs:  0.01\n"
            "Devices:     ['emulated:0', 'emulated:1']\n"
            "NUMA bind:   False\n"
            "Data format: NHWC\n"
            "Optimizer:   sgd\n"
            "Variables:   replicated\n"
            "AllReduce:   None\n"
            "==========\n");
}

std::string header_of(const char* feeder, const char* update, bool servers = false) {
  RunConfig config;
  config.fake_location = feeder;
  config.variable_update = update;
  return report::format_header({.config = config, .synthetic = false, .servers = servers});
}

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST(StepTable, TheHeaderSaysWhatTheRunDoes) {
  EXPECT_TRUE(has_line(header_of("queue:numa=0,cores=auto", "replicated"), "NUMA bind:   True"));
  RunConfig config;
  config.data_format = "NCHW";
  EXPECT_TRUE(has_line(report::format_header({config}), "Data format: NCHW"));
  const report::StepTableHeader cifar{.config = config, .synthetic = false, .dataset = "cifar10"};
  EXPECT_TRUE(has_line(report::format_header(cifar), "Dataset:     cifar10"));
}

TEST(StepTable, AnEvaluationAloneHasTheBatchesOfOneDevice) {
  RunConfig config;
  config.eval = true;
  config.num_gpus = 2;
  config.batch_size = 64;
  config.num_batches = 4;
  EXPECT_TRUE(has_line(report::format_header({.config = config, .examples_per_epoch = 256}),
                       "Batch size:  64 global\n             64 per device\n"
                       "Num batches: 4\nNum epochs:  1.00"));
  config.eval_batch_size = 32;
  EXPECT_TRUE(has_line(report::format_header({.config = config, .examples_per_epoch = 128}),
                       "Batch size:  32 global\n             32 per device\n"
                       "Num batches: 4\nNum epochs:  1.00"));
}

TEST(StepTable, LinesAboutVariablesDependOnTheUpdate) {
  const std::string staged = header_of("queue", "parameter_server:staged=true");
  EXPECT_TRUE(has_line(staged, "Staged vars: True"));
  EXPECT_FALSE(says(staged, "AllReduce"));
  EXPECT_FALSE(says(staged, "Sync")) << "there are no processes to wait for";
  EXPECT_TRUE(has_line(header_of("queue", "parameter_server", true), "Sync:        True"));
  EXPECT_TRUE(
      has_line(header_of("queue", "parameter_server:sync=false", true), "Sync:        False"));
  for (const char* update : {"horovod", "independent", "byteps"}) {
    EXPECT_FALSE(says(header_of("queue", update), "AllReduce")) << update;
  }
  EXPECT_TRUE(has_line(header_of("queue", "distributed_all_reduce"), "AllReduce:   None"));
}

TEST(StepTable, TheHeaderReadsOptionsAsTheRunDoes) {
  EXPECT_TRUE(has_line(header_of("queue", "parameter_server:staged=1"), "Staged vars: True"));
  EXPECT_FALSE(says(header_of("queue", "parameter_server:staged=no"), "Staged vars"));
  for (const char* sync : {"mean", "tf", "true"}) {
    const std::string update = std::string("parameter_server:sync=") + sync;
    EXPECT_TRUE(has_line(header_of("queue", update.c_str()), "Sync:        True")) << sync;
  }
}

TEST(StepTable, UnderHorovodTheHeaderSaysWhereGradientsAreAdded) {
  RunConfig config;
  config.variable_update = "horovod";
  EXPECT_TRUE(has_line(report::format_header({config}), "Horovod on:  cpu"));
  EXPECT_TRUE(
      has_line(report::format_header({.config = config, .horovod_on = "gpu"}), "Horovod on:  gpu"));
  EXPECT_FALSE(says(header_of("queue", "replicated"), "Horovod on"));
}

TEST(StepTable, TheHeaderListsTheDevicesOfAllProcessesUnderHorovod) {
  RunConfig config;
  config.batch_size = 64;
  config.num_processes = 2;
  config.variable_update = "horovod";
  const std::string text = report::format_header({config});
  EXPECT_TRUE(has_line(text, "Batch size:  128 global")) << text;
  EXPECT_TRUE(has_line(text, "Devices:     ['horovod/emulated:0', 'horovod/emulated:1']")) << text;
}

TEST(StepTable, RowsHaveNineTokensAndRealTabs) {
  const std::string row = report::format_row({.index = 9, .loss = 7.1234}, 64, {0.5, 0.25}, {});
  EXPECT_EQ(row, "10\timages/sec: 170.7 +/- 45.3 (jitter = 94.9)\t7.123\n");
  std::istringstream words(row);
  int tokens = 0;
  for (std::string word; words >> word;) ++tokens;
  EXPECT_EQ(tokens, 9);
}

TEST(StepTable, AccuracyAddsTwoColumnsOfThreeDecimals) {
  RunConfig config;
  EXPECT_EQ(report::format_title(config), "Step\tImg/sec\ttotal_loss\n");
  config.loss_type_to_report = "base_loss";
  config.print_training_accuracy = true;
  EXPECT_EQ(report::format_title(config),
            "Step\tImg/sec\tbase_loss\ttop_1_accuracy\ttop_5_accuracy\n");
  EXPECT_EQ(
      report::format_row({.index = 0, .loss = 7, .top1 = 0.25, .top5 = 0.875}, 64, {0.5}, config),
      "1\timages/sec: 128.0 +/- 0.0 (jitter = 0.0)\t7.000\t0.250\t0.875\n");
}

TEST(StepTable, ForwardOnlyIsAModeWithAccuracies) {
  RunConfig config;
  config.forward_only = true;
  EXPECT_TRUE(says(report::format_header({config}), "Mode:        forward only\n"));
  EXPECT_TRUE(says(report::format_title(config), "top_1_accuracy"));
}

TEST(StepTable, EvaluationsPrintRatesAndThenAccuracies) {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* const file = open_memstream(&text, &size);
  RunConfig config;
  config.display_every = 2;
  report::StepTable table(config, file);
  table.evaluation_begins(40);
  for (std::size_t i = 0; i < 3; ++i) table.evaluation_step(i, 8, 0.5);
  table.evaluated({.step = 40, .images = 24, .top1 = 0.5, .top5 = 0.87654, .complete = true});
  std::fclose(file);
  EXPECT_EQ(std::string(text, size),
            "Running evaluation at global_step 40\n"
            "2\t16.0 examples/sec\n"
            "Accuracy @ 1 = 0.5000 Accuracy @ 5 = 0.8765 [24 examples]\n");
  std::free(text);
}

TEST(StepTable, TotalStandsBetweenTwoRulesOfSixtyFourDashes) {
  const std::string rule(64, '-');
  RunResult result;
  result.img_per_s = 1234.567;
  EXPECT_EQ(report::format_end(result), rule + "\ntotal images/sec: 1234.57\n" + rule + "\n");
}

TEST(StepTable, WhatIsInDoubtStandsInALineBelowTheTotalWhichKeepsItsForm) {
  RunResult result;
  result.img_per_s = 1999.97;
  const std::string total = report::format_end(result);
  result.reason = "this is why";
  for (const Status status : {Status::draining, Status::partial, Status::failed}) {
    result.status = status;
    EXPECT_EQ(report::format_end(result),
              total + "# " + std::string(to_string(status)) + ": this is why\n");
  }
  result.img_per_s = 0;
  EXPECT_EQ(report::format_end(result), "# failed: this is why\n");
  result.config.eval_during_training_every_n_steps = 10;
  EXPECT_EQ(report::format_end(result), "Done with training\n# failed: this is why\n");
}

TEST(StepTable, ARunWithoutATotalSaysWhy) {
  const std::string text = report::format_end({});
  EXPECT_TRUE(text.starts_with("# no total: ")) << text;
  EXPECT_TRUE(text.ends_with("; measure more steps\n")) << text;
}

}  // namespace
}  // namespace penstock
