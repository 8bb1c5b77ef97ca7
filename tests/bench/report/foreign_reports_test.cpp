// SPDX-License-Identifier: Apache-2.0
// Reports in the formats of other benchmarks must match exactly.
#include <gtest/gtest.h>

#include <sstream>

#include "bench/record/saved_results.h"
#include "bench/report/report.h"
#include "tests/bench/record/sweep_rows.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

/// Two devices with 50 images each and steps of 100 ms: 1000 img/s. Every second iteration of ten
/// steps is a quarter faster.
RunResult make_run(std::size_t steps) {
  RunResult result = make_result(Status::ok, 1000, 1000);
  result.config.num_gpus = 2;
  result.config.batch_size = 50;
  result.config.fake_location = "cpu";
  result.config.num_batches = 20;
  result.images_per_step = 100;
  result.examples_per_epoch = 1000;
  result.step_ms.clear();
  for (std::size_t step = 0; step < steps; ++step)
    result.step_ms.push_back(step / 10 % 2 == 0 ? 100 : 80);
  result.losses.assign(steps, 6.5);
  return result;
}

/// The same run in three processes: rank 0's steps with the images of all, as gather_ranks merges.
RunResult make_run_of_three(std::size_t steps) {
  RunResult result = make_run(steps);
  result.config.num_processes = 3;
  result.images_per_step *= 3;
  return result;
}

std::string written(const char* report, const SweepResult& sweep) {
  std::ostringstream text;
  find_entry(report::report_table(), report).write(sweep, {}, text);
  return text.str();
}

std::string written(const char* report, const RunResult& result) {
  return written(report, sweep_of({result}, {}));
}

TEST(TfCnnBenchmarksReport, IsWhatARunPrints) {
  const std::string text = written("tf_cnn_benchmarks", make_run(20));
  EXPECT_EQ(text,
            "Model:       resnet50\n"
            "Dataset:     imagenet (synthetic)\n"
            "Mode:        training\n"
            "SingleSess:  False\n"
            "Batch size:  100 global\n"
            "             50 per device\n"
            "Num batches: 20\n"
            "Num epochs:  2.00\n"
            "Devices:     ['emulated:0', 'emulated:1']\n"
            "NUMA bind:   False\n"
            "Data format: NHWC\n"
            "Optimizer:   sgd\n"
            "Variables:   replicated\n"
            "AllReduce:   None\n"
            "==========\n"
            "Generating training model\n"
            "Initializing graph\n"
            "Running warm up\n"
            "Done warm up\n"
            "Step\tImg/sec\ttotal_loss\n"
            "1\timages/sec: 1000.0 +/- 0.0 (jitter = 0.0)\t6.500\n"
            "10\timages/sec: 1000.0 +/- 0.0 (jitter = 0.0)\t6.500\n"
            "20\timages/sec: 1111.1 +/- 28.0 (jitter = 185.3)\t6.500\n"
            "----------------------------------------------------------------\n"
            "total images/sec: 1000.00\n"
            "----------------------------------------------------------------\n");
}

TEST(HorovodReport, HasIterationsOfTenSteps) {
  const std::string text = written("horovod", make_run(25));
  EXPECT_EQ(text,
            "# cpu on 2 x emulated, run 1 of 1: ok\n"
            "Model: resnet50\n"
            "Batch size: 50\n"
            "Number of GPUs: 2\n"
            "Running warmup...\n"
            "Running benchmark...\n"
            "Iter #0: 500.0 img/sec per GPU\n"
            "Iter #1: 625.0 img/sec per GPU\n"
            "Img/sec per GPU: 562.5 +-122.5\n"
            "Total img/sec on 2 GPU(s): 1125.0 +-245.0\n");
  const std::string of_three_steps = written("horovod", make_run(3));
  EXPECT_TRUE(says(of_three_steps, "Iter #0: 500.0 img/sec per GPU\nImg/sec"));
  RunResult on_cores = make_run(25);
  on_cores.config.device = "cpu";
  EXPECT_TRUE(says(written("horovod", on_cores), "Img/sec per CPU: "));
}

TEST(HorovodReport, CountsTheDevicesOfAllProcesses) {
  EXPECT_EQ(written("horovod", make_run_of_three(25)),
            "# cpu on 6 x emulated, run 1 of 1: ok\n"
            "Model: resnet50\n"
            "Batch size: 50\n"
            "Number of GPUs: 6\n"
            "Running warmup...\n"
            "Running benchmark...\n"
            "Iter #0: 500.0 img/sec per GPU\n"
            "Iter #1: 625.0 img/sec per GPU\n"
            "Img/sec per GPU: 562.5 +-122.5\n"
            "Total img/sec on 6 GPU(s): 3375.0 +-735.0\n");
}

TEST(HorovodReport, HasTheSameRatePerDeviceIfRanksWereNotGathered) {
  RunResult result = make_run_of_three(25);
  result.images_per_step = 100;  // of rank 0 alone
  const std::string text = written("horovod", result);
  EXPECT_TRUE(
      text.ends_with("Img/sec per GPU: 562.5 +-122.5\n"
                     "Total img/sec on 6 GPU(s): 3375.0 +-735.0\n"))
      << text;
}

TEST(KungFuReport, EndsInALineForPrograms) {
  const std::string text = written("kungfu", make_run(25));
  EXPECT_TRUE(text.ends_with(
      "Iter #1: 625.0 img/sec per GPU\n"
      "Img/sec per GPU: 562.5 +-122.5\n"
      "RESULT: 562.500000 +-122.500000 "
      "{\"framework\":\"penstock\",\"np\":2,\"strategy\":\"replicated\",\"bs\":50,"
      "\"model\":\"resnet50\",\"xla\":false,\"kf-opt\":\"replicated\",\"fuse\":false,"
      "\"nvlink\":null,\"data\":\"memory\"}\n"))
      << text;
}

TEST(KungFuReport, CountsTheDevicesOfAllProcesses) {
  const std::string text = written("kungfu", make_run_of_three(25));
  EXPECT_TRUE(says(text, "Number of GPUs: 6\nIter #0: 500.0 img/sec per GPU\n"));
  EXPECT_TRUE(says(text, "RESULT: 562.500000 +-122.500000 {\"framework\":\"penstock\",\"np\":6,"));
}

TEST(TensorpackReport, HasEpochsOfFiftySteps) {
  RunResult result = make_run(100);
  result.queues.emplace_back().filled = {1, 1, 3, 3};
  EXPECT_EQ(written("tensorpack", result),
            "# cpu on 2 x emulated, run 1 of 1: ok\n"
            "Start Epoch 1 ...\n"
            "Epoch 1 (global_step 50) finished, time:4.6 seconds.\n"
            "QueueInput/queue_size: 1\n"
            "Throughput (samples/sec): 1087\n"
            "Start Epoch 2 ...\n"
            "Epoch 2 (global_step 100) finished, time:4.4 seconds.\n"
            "QueueInput/queue_size: 2.5\n"
            "Throughput (samples/sec): 1136.4\n"
            "Training has finished!\n");
}

TEST(ForeignReports, HaveTheImagesOfAllProcessesInTheirTotals) {
  const RunResult result = make_run_of_three(50);
  EXPECT_TRUE(says(written("tensorpack", result), "Throughput (samples/sec): 3260.9\n"));
  const std::string table = written("tf_cnn_benchmarks", result);
  EXPECT_TRUE(says(table, "Batch size:  300 global\n             50 per device\n"));
  EXPECT_TRUE(says(table, "Num batches: 20\nNum epochs:  6.00\n"));
  EXPECT_TRUE(says(table, "1\timages/sec: 3000.0 +/- 0.0"));
}

TEST(ForeignReports, TellSeveralRunsApartAndNameRunsWithoutSteps) {
  SweepResult sweep;
  sweep.repetitions = 3;
  sweep.varied = {&find_config_key("fake_location")};
  sweep.rows = {make_ok_row("cpu", 1000), make_row("queue")};
  sweep.rows[1].unavailable = "not built";
  summarise(sweep);
  for (const char* report : {"tf_cnn_benchmarks", "horovod", "kungfu", "tensorpack"}) {
    const std::string text = written(report, sweep);
    EXPECT_TRUE(says(text, "# cpu on 1 x emulated, run 3 of 3: ok\n")) << report;
    EXPECT_TRUE(says(text, "# queue: skipped: not built\n")) << report;
  }
}

}  // namespace
}  // namespace penstock
