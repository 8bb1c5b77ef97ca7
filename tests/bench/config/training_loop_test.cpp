// SPDX-License-Identifier: Apache-2.0
#include "bench/config/training_loop.h"
#include "bench/config/run_flags.h"

#include <gtest/gtest.h>

#include "bench/config/comparable.h"
#include "bench/config/flags.h"
#include "bench/run/runner.h"
#include "dataflow/error.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

RunConfig resolved(RunConfig config) { return resolve(config, find_components(config)); }

RunConfig with_a_loader() {
  RunConfig config;
  config.fake_location = "python:loader=train.py:make,batch=4x8x8x3";
  return config;
}

TEST(TrainingLoop, HasANumberOfStepsAheadAndATimeToLaunchThem) {
  struct Case {
    const char* typed;
    int ahead;
    double launch_ms;
    const char* shown;
  };
  for (const auto& [typed, ahead, launch_ms, shown] : {Case{"sync", 0, 0, "sync"},
                                                       {"async", 1, 0, "async"},
                                                       {"ahead=0", 0, 0, "sync"},
                                                       {"ahead=4", 4, 0, "ahead=4"},
                                                       {"launch=2.5", -1, 2.5, "launch=2.5"},
                                                       {"sync:launch=3", 0, 3, "sync:launch=3"},
                                                       {"", -1, 0, ""}}) {
    SCOPED_TRACE(typed);
    const TrainingLoop loop = parse_loop(typed);
    EXPECT_EQ(loop.ahead.value_or(-1), ahead);
    EXPECT_EQ(loop.launch_ms, launch_ms);
    EXPECT_EQ(to_string(loop), shown);
  }
  for (const char* const wrong :
       {"syncs", "ahead", "ahead=-1", "ahead=65", "launch=-1", "launch=x", "4", "sync:4"}) {
    EXPECT_TRUE(says(thrown_by<ConfigError>([&] { parse_loop(wrong); }), "--loop")) << wrong;
  }
}

TEST(TrainingLoop, TheRingsOfALoadersRunAreAsDeepAsItsLoop) {
  RunConfig config = with_a_loader();
  config.prefetch = 7;
  config.device_slots = 9;
  for (const auto& [loop, slots] : {std::pair("sync", 1), {"async", 1}, {"ahead=4", 4}}) {
    config.loop = loop;
    const RunConfig found = resolved(config);
    EXPECT_EQ(found.loop, loop);
    EXPECT_EQ(found.prefetch, 1);
    EXPECT_EQ(found.device_slots, slots);
    EXPECT_EQ(resolved(found), found);
  }
  config.num_gpus = 2;
  EXPECT_EQ(resolved(config).prefetch, 1) << "a ring for each device";
  config.loader_per = "process";
  EXPECT_EQ(resolved(config).prefetch, 2) << "a slot for each device";
}

TEST(TrainingLoop, WithoutOneTheDeviceDecides) {
  RunConfig config = with_a_loader();
  EXPECT_EQ(resolved(config).loop, "async");
  config.loop = "launch=2";
  EXPECT_EQ(resolved(config).loop, "async:launch=2");
  if (match_entry(backend_table(), "cpu") == nullptr) GTEST_SKIP() << "built without a CPU device";
  config.loop.clear();
  config.device = "cpu";
  EXPECT_EQ(resolved(config).loop, "sync");
}

TEST(TrainingLoop, FeedersOfOursKeepTheirRings) {
  RunConfig config;
  config.loop = "sync";
  for (const char* const feeder : {"gpu", "host", "python-queue"}) {
    config.fake_location = feeder;
    const RunConfig found = resolved(config);
    EXPECT_EQ(found.loop, "");
    EXPECT_EQ(found.prefetch, RunConfig().prefetch);
    EXPECT_EQ(found.device_slots, RunConfig().device_slots);
  }
}

TEST(TrainingLoop, DepthsOfRingsAreRefusedBesideALoader) {
  for (const char* const depth : {"--prefetch=4", "--device-slots=1"}) {
    RunConfig config;
    const std::string said = thrown_by<ConfigError>([&] {
      apply_like_of(config, std::vector<std::string>{"--loader=train.py:make", depth});
    });
    EXPECT_TRUE(says(said, "use --loop ahead=N"));
  }
}

TEST(TrainingLoop, TheCeilingOfALoaderIsARowWithoutALoop) {
  RunConfig ceiling;
  ceiling.fake_location = "gpu";
  RunConfig loader = with_a_loader();
  loader.loop = "ahead=4";
  EXPECT_TRUE(same_trainer(resolved(ceiling), resolved(loader)));
}

}  // namespace
}  // namespace penstock
