// SPDX-License-Identifier: Apache-2.0
#include "bench/sweep/sweep.h"
#include "bench/config/comparable.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "dataflow/error.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

TEST(Sweep, WithoutListsIsTheBase) {
  RunConfig base;
  base.num_gpus = 3;
  EXPECT_EQ(Sweep().expand(base), std::vector<RunConfig>{base});
}

TEST(Sweep, IsTheCrossProductWithFeedersFastest) {
  Sweep sweep;
  sweep.set("num_gpus", "1,2,4");
  sweep.set("fake_location", "gpu,cpu");
  const std::vector<RunConfig> configurations = sweep.expand({});
  ASSERT_EQ(configurations.size(), 6U);
  const std::int32_t devices[] = {1, 1, 2, 2, 4, 4};
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(configurations[i].fake_location, i % 2 == 0 ? "gpu" : "cpu");
    EXPECT_EQ(configurations[i].num_gpus, devices[i]);
  }
}

TEST(Sweep, PinnedMemoryAndTheLayoutOfBatchesAreAxesThatLeaveTheTrainerAlone) {
  Sweep sweep;
  sweep.set("pinned_memory", "true,false");
  sweep.set("data_format", "NHWC,NCHW");
  const std::vector<RunConfig> rows = sweep.expand({});
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(std::ranges::count(rows, false, &RunConfig::pinned_memory), 2);
  EXPECT_EQ(std::ranges::count(rows, "NCHW", &RunConfig::data_format), 2);
  for (const RunConfig& row : rows) EXPECT_TRUE(same_trainer(row, rows.front()));
}

TEST(Sweep, ComponentValuesKeepTheirOptions) {
  Sweep sweep;
  sweep.set("fake-location", "gpu,zmq-consume:hwm=8,bind=true,cpu");
  sweep.set("device", "emulated:img_per_s=359,copy=none,emulated");
  const std::vector<RunConfig> configurations = sweep.expand({});
  ASSERT_EQ(configurations.size(), 6U);
  EXPECT_EQ(configurations[1].fake_location, "zmq-consume:hwm=8,bind=true");
  EXPECT_EQ(configurations[0].device, "emulated:img_per_s=359,copy=none");
  EXPECT_EQ(configurations[3].device, "emulated");
}

TEST(Sweep, OneValueIsAConstantAndTheLastListOfAKeyHolds) {
  Sweep sweep;
  sweep.set("batch_size", "16,32");
  sweep.set("batch_size", "8");
  const std::vector<RunConfig> configurations = sweep.expand({});
  ASSERT_EQ(configurations.size(), 1U);
  EXPECT_EQ(configurations[0].batch_size, 8);
}

TEST(Sweep, RefusesWhatTheKeyRefusesByItsFlag) {
  const auto refusal = [](const char* key, const char* list) {
    return thrown_by<ConfigError>([&] { Sweep().set(key, list); });
  };
  EXPECT_TRUE(says(refusal("num_gpus", "1,0"), "--num-gpus is 0"));
  EXPECT_TRUE(says(refusal("num_gpus", "1,,2"), "empty element"));
  EXPECT_TRUE(says(refusal("fake_location", "gpu,,cpu"), "empty element"));
  EXPECT_TRUE(says(refusal("num_gpus", "2,1,2"), "lists '2' twice"));
  EXPECT_TRUE(says(refusal("num_gpu", "2"), "did you mean 'num_gpus'"));
}

TEST(Sweep, RefusesMoreConfigurationsThanAnyoneWaitsFor) {
  std::string list = "1";
  for (int value = 2; value <= 200; ++value) list.append(",").append(std::to_string(value));
  Sweep sweep;
  for (const char* key : {"batch_size", "prefetch", "device_slots"}) sweep.set(key, list);
  EXPECT_THROW(sweep.expand({}), ConfigError);
}

TEST(SameTrainer, ComparesAllKeysButTheKeysOfFeeders) {
  RunConfig a, b;
  b.fake_location = "cpu";
  b.data_dir = "elsewhere";
  b.prefetch = 99;
  b.feeder_threads = 7;
  EXPECT_TRUE(same_trainer(a, b));
  for (const char* key : {"num_gpus", "batch_size", "device_slots", "num_batches", "seed"}) {
    RunConfig other = b;
    find_config_key(key).set(other, "77");
    EXPECT_FALSE(same_trainer(a, other)) << key;
  }
  b.model = "null";
  EXPECT_FALSE(same_trainer(a, b));
}

TEST(UnavailableReason, IsEmptyForWhatIsHere) { EXPECT_EQ(unavailable_reason({}), ""); }

TEST(UnavailableReason, TellsWhatIsKnownButAbsent) {
  RunConfig config;
  config.fake_location = "zmq-serve";
  EXPECT_TRUE(says(unavailable_reason(config), "'zmq-serve' is known, but"));
}

TEST(UnavailableReason, ThrowsForSlipsEvenBesideAbsentComponents) {
  RunConfig config;
  config.fake_location = "zmq-serve";
  config.model = "resnet5O";
  EXPECT_TRUE(
      says(thrown_by<ConfigError>([&] { unavailable_reason(config); }), "did you mean 'resnet50'"));
  config.model = "resnet50:depth=18";
  EXPECT_THROW(unavailable_reason(config), ConfigError);
  config.model = "resnet50";
  config.device = "emulated:img_per_s=fast";
  EXPECT_THROW(unavailable_reason(config), ConfigError);
}

}  // namespace
}  // namespace penstock
