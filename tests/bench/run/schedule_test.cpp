// SPDX-License-Identifier: Apache-2.0
// A global batch has one schedule: the same number of steps per epoch and the same learning rates,
// whether its devices are threads of one process or belong to several processes.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/run/run_parts.h"
#include "tests/support/processes_in_memory.h"
#include "tests/support/training_fixture.h"
#include "trainer/collectives/threads.h"

namespace penstock {
namespace {

/// One process of a run that is prepared but never steps.
class PreparedProcess final : public PlayedProcess {
 public:
  PreparedProcess(std::int32_t rank, std::int32_t size, Clock& clock)
      : PlayedProcess({.launcher = "the test",
                       .rank = rank,
                       .size = size,
                       .local_rank = rank,
                       .local_size = size}),
        clock_(clock) {}
  /// Rank 0 says that its checkpoint has no bytes.
  std::vector<std::string> all_gather(std::string_view, Nanoseconds, std::string_view) override {
    return std::vector<std::string>(static_cast<std::size_t>(launch().size), "0 0");
  }
  std::unique_ptr<CollectiveGroup> make_group(const Exchange& exchange) override {
    const std::vector<Device*> devices(static_cast<std::size_t>(launch().size), &exchange.device);
    return std::make_unique<collectives::ThreadsGroup>(devices, clock_, exchange.abandon);
  }

 private:
  Clock& clock_;
};

class Schedule : public TrainingFixture {
 protected:
  static constexpr std::int32_t kGlobalBatch = 8;

  /// The learning rate of each step of the run.
  std::vector<float> rates(std::int32_t processes, std::int32_t devices, std::int32_t rank) {
    RunConfig config = config_;
    config.device = device_;
    config.num_gpus = devices;
    config.batch_size = kGlobalBatch / (processes * devices);
    PreparedProcess process(rank, processes, clock_);
    Runner::Components entries = components();
    if (processes > 1) entries.processes = &process;
    const RunParts parts(config, clock_, entries, {}, {});
    std::vector<float> rates;
    for (std::int64_t step = 0; step < parts.setup.config.num_batches; ++step) {
      rates.push_back(learning_rate(parts.schedule.learning_rates, step));
    }
    return rates;
  }

  void expect_one_schedule() {
    const std::vector<float> whole = rates(1, 1, 0);
    struct Split {
      std::int32_t processes, devices;
    };
    for (const auto [processes, devices] :
         {Split{1, 2}, Split{1, 8}, Split{2, 1}, Split{2, 2}, Split{4, 1}, Split{8, 1}}) {
      for (const std::int32_t rank : {0, processes - 1}) {
        EXPECT_EQ(rates(processes, devices, rank), whole)
            << processes << " processes of " << devices << " devices, rank " << rank;
      }
    }
  }
};

TEST_F(Schedule, IsTheSameHoweverAGlobalBatchIsSplit) {
  config_.num_epochs = 3;  // of 5 steps: 40 images
  config_.init_learning_rate = 0;
  config_.piecewise_learning_rate_schedule = "0.1;1;0.01;2.5;0.001";
  const std::vector<float> rates_of_one = rates(1, 1, 0);
  ASSERT_EQ(rates_of_one.size(), 15U);
  EXPECT_EQ(rates_of_one[4], 0.1F);
  EXPECT_EQ(rates_of_one[5], 0.01F);
  EXPECT_EQ(rates_of_one[12], 0.001F);
  expect_one_schedule();
  config_.piecewise_learning_rate_schedule.clear();
  config_.init_learning_rate = 0.2;
  config_.num_learning_rate_warmup_epochs = 2;
  config_.num_epochs_per_decay = 0.8;
  config_.learning_rate_decay_factor = 0.5;
  expect_one_schedule();
}

TEST_F(Schedule, IsTheSameWhereRanksGetUnequalSharesOfTheImages) {
  write_coloured_images(folder_, "odd/train", 3, 7);  // 21: shares of 3 and of 2 for eight ranks
  config_.data_dir = (folder_ / "odd/train").string();
  config_.num_epochs = 4;
  config_.init_learning_rate = 0;
  config_.piecewise_learning_rate_schedule = "0.1;1;0.01;3;0.001";
  ASSERT_EQ(rates(1, 1, 0).size(), 11U);  // 84 images
  expect_one_schedule();
}

TEST_F(Schedule, CountsTheEpochsOfEverySourceOverAllRanks) {
  config_.num_epochs = 2;
  for (const char* const feeder :
       {"queue:crop=full,source=memory", "queue:crop=full,repeat_cached_sample=true",
        "queue:crop=full,readahead=4"}) {
    config_.fake_location = feeder;
    SCOPED_TRACE(feeder);
    ASSERT_EQ(rates(1, 1, 0).size(), 10U);
    expect_one_schedule();
  }
}

}  // namespace
}  // namespace penstock
