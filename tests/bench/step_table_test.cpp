// SPDX-License-Identifier: Apache-2.0
// The console output of tf_cnn_benchmarks, by which its users' parsers live.
#include "bench/step_table.h"

#include <gtest/gtest.h>

#include <sstream>

namespace penstock {
namespace {

TEST(StepTable, HeaderLabelsArePaddedToThirteenColumns) {
  RunConfig config;
  config.num_gpus = 2;
  config.batch_size = 64;
  EXPECT_EQ(format_header({config, true, true}),
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

TEST(StepTable, RowsHaveNineTokensAndRealTabs) {
  const std::string row = format_row(10, 64, {0.5, 0.25}, 0, 7.1234);
  EXPECT_EQ(row, "10\timages/sec: 170.7 +/- 45.3 (jitter = 94.9)\t7.123\n");
  std::istringstream words(row);
  int tokens = 0;
  for (std::string word; words >> word;) ++tokens;
  EXPECT_EQ(tokens, 9);
}

TEST(StepTable, TotalStandsBetweenTwoRulesOfSixtyFourDashes) {
  const std::string rule(64, '-');
  EXPECT_EQ(format_total(1234.567), rule + "\ntotal images/sec: 1234.57\n" + rule + "\n");
}

}  // namespace
}  // namespace penstock
