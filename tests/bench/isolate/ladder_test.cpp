// SPDX-License-Identifier: Apache-2.0
// The cost that rungs add, from simulated runs.
#include <gtest/gtest.h>

#include <algorithm>

#include "bench/isolate/ladder.h"
#include "dataflow/error.h"
#include "tests/bench/isolate/simulated_machine.h"
#include "tests/support/npy_file.h"
#include "tests/support/tar_writer.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

/// A rung whose feeder takes `feeder_ms`, measured in three blocks beside a device of 10 ms.
void measure(SweepResult& sweep, isolate::LadderRung& rung, double feeder_ms) {
  SimulatedMachine machine{.device_ms = 10, .feeder_ms = feeder_ms, .noise = 0.01, .drift = 0.05};
  for (const bool trains : {true, false}) {
    if (!trains && rung.is_ceiling) continue;
    Row& row = sweep.rows.emplace_back();
    row.config = rung.config;
    row.config.feeder_threads = 1;
    row.config.num_batches = 60;
    if (!trains) row.config.model = "null";
    for (std::int32_t block = 0; block < 3; ++block) {
      RunConfig config = row.config;
      config.seed = static_cast<std::uint64_t>(block);
      row.repetitions.push_back({block, machine.run(config)});
    }
    (trains ? rung.row : rung.supply_row) = sweep.rows.size() - 1;
  }
}

isolate::LadderRung rung_of(std::string name, std::string feeder) {
  isolate::LadderRung rung;
  rung.name = std::move(name);
  rung.config.fake_location = std::move(feeder);
  rung.is_ceiling = rung.config.fake_location == "gpu";
  return rung;
}

std::vector<std::string> feeders_of(const std::vector<isolate::LadderRung>& rungs) {
  std::vector<std::string> feeders;
  for (const isolate::LadderRung& rung : rungs) feeders.push_back(rung.config.fake_location);
  return feeders;
}

TEST(Ladder, ClimbsFromTheCeilingToColdFilesWithZeroMqAsABranch) {
  RunConfig base;
  base.fake_location = "queue:upsampling=plain,crop=center,engine=libjpeg,readahead=8";
  const std::vector<isolate::LadderRung> rungs = isolate::ladder_rungs(base, {});
  const std::vector<std::string> expected = {
      "gpu",
      "host",
      "cpu",
      "queue:source=memory,decode=raw,upsampling=plain",
      "queue:source=memory,decode=full,engine=libjpeg,crop=center,flip=false,upsampling=plain",
      "queue:source=memory,decode=full,engine=libjpeg,upsampling=plain",
      "queue:source=memory,engine=libjpeg,shrink=false,upsampling=plain",
      "queue:source=memory,engine=libjpeg,upsampling=plain",
      "queue:source=memory,upsampling=plain",
      "queue:upsampling=plain",
      "queue:upsampling=plain",
      "queue:readahead=64,upsampling=plain",
      "zmq-consume"};
  EXPECT_EQ(feeders_of(rungs), expected);
  EXPECT_TRUE(rungs.front().is_ceiling);
  EXPECT_TRUE(rungs.back().branch);
  EXPECT_EQ(rungs[8].proof, "");
  EXPECT_EQ(rungs[9].proof, "page_cache_warm");
  EXPECT_EQ(rungs[10].proof, "page_cache_cold");
  EXPECT_EQ(rungs[11].proof, "page_cache_cold");
}

TEST(Ladder, ReadsPackedSetsWhereTheyLie) {
  RunConfig base;
  base.fake_location = "queue:source=tfrecord:crc=false,decode=full";
  const isolate::LadderData data{.is_folder = false, .examples = 1000};
  const std::vector<isolate::LadderRung> rungs = isolate::ladder_rungs(base, data);
  const std::vector<std::string> expected = {
      "gpu",
      "host",
      "cpu",
      "queue:decode=full,engine=libjpeg,crop=center,flip=false,source=tfrecord:crc=false",
      "queue:decode=full,engine=libjpeg,source=tfrecord:crc=false",
      "queue:engine=libjpeg,shrink=false,source=tfrecord:crc=false",
      "queue:engine=libjpeg,source=tfrecord:crc=false",
      "queue:source=tfrecord:crc=false",
      "queue:source=tfrecord:crc=false",
      "queue:readahead=64,source=tfrecord:crc=false",
      "zmq-consume"};
  EXPECT_EQ(feeders_of(rungs), expected);
  for (std::size_t i = 3; i < 8; ++i) EXPECT_EQ(rungs[i].proof, "page_cache_warm");
  EXPECT_EQ(rungs[8].config.page_cache, "cold");
  EXPECT_EQ(rungs[8].examples, 1000U);
}

TEST(Ladder, PixelsAreNotDecoded) {
  RunConfig base;
  base.fake_location = "queue:crop=pad4";
  const isolate::LadderData data{.is_folder = false, .kind = SampleKind::pixels, .examples = 10};
  const std::vector<std::string> expected = {"gpu",
                                             "host",
                                             "cpu",
                                             "queue:crop=full,flip=false",
                                             "queue",
                                             "queue",
                                             "queue:readahead=64",
                                             "zmq-consume"};
  EXPECT_EQ(feeders_of(isolate::ladder_rungs(base, data)), expected);
}

TEST(Ladder, NormalisingOnTheCpuIsARungWhereItIsAskedFor) {
  RunConfig base;
  base.fake_location = "queue:normalise=f16";
  const std::vector<std::string> feeders = feeders_of(isolate::ladder_rungs(base, {}));
  ASSERT_EQ(feeders.size(), 14U);
  EXPECT_EQ(feeders[8], "queue:source=memory");
  EXPECT_EQ(feeders[9], "queue:source=memory,normalise=f16");
  EXPECT_EQ(feeders[11], "queue:normalise=f16");
  base.fake_location = "queue:normalise=device";
  EXPECT_EQ(isolate::ladder_rungs(base, {}).size(), 13U);
}

TEST(Ladder, ColoursAreDistortedWhereCropsAreRandom) {
  RunConfig base;
  base.fake_location = "queue:chain=tensorpack,color=tf";
  const std::vector<isolate::LadderRung> rungs = isolate::ladder_rungs(base, {});
  EXPECT_EQ(rungs[3].config.fake_location,
            "queue:source=memory,decode=raw,chain=tensorpack,color=none");
  EXPECT_EQ(rungs[4].config.fake_location,
            "queue:source=memory,decode=full,engine=libjpeg,crop=center,flip=false,"
            "chain=tensorpack,color=none");
  EXPECT_EQ(rungs[5].config.fake_location,
            "queue:source=memory,decode=full,engine=libjpeg,chain=tensorpack,color=tf");
}

TEST(Ladder, ALoaderIsTakenApart) {
  RunConfig base;
  base.fake_location = "python:loader=l.py:f,batch=2x4x4x3";
  const auto rungs = isolate::loader_rungs(base);
  EXPECT_EQ(
      feeders_of(rungs),
      (std::vector<std::string>{"gpu", "host", "python:loader=l.py:f,batch=2x4x4x3,part=handover",
                                "python:loader=l.py:f,batch=2x4x4x3,part=collate",
                                "python:loader=l.py:f,batch=2x4x4x3",
                                "python:loader=l.py:f,batch=2x4x4x3,part=samples"}));
  EXPECT_TRUE(rungs.front().is_ceiling);
  EXPECT_TRUE(rungs.back().branch);
  base.data_dir = "data/train";
  EXPECT_EQ(isolate::loader_rungs(base).back().config.fake_location, "queue");
}

TEST(Ladder, EachRungHasItsCostWhatItAddsAndItsSupply) {
  std::vector<isolate::LadderRung> rungs = {rung_of("gpu", "gpu"), rung_of("slow", "cpu"),
                                            rung_of("cheaper", "host"),
                                            rung_of("branch", "zmq-consume")};
  rungs.back().branch = true;
  SweepResult sweep;
  measure(sweep, rungs[0], 0);
  measure(sweep, rungs[1], 20);
  measure(sweep, rungs[2], 16);
  measure(sweep, rungs[3], 12);
  summarise(sweep);
  const std::vector<isolate::RungFinding> found = isolate::find_rungs(sweep, rungs, {});
  ASSERT_EQ(found.size(), 4U);
  EXPECT_FALSE(found[0].added_ms) << "there is nothing below the ceiling";
  ASSERT_TRUE(found[1].cost);
  EXPECT_NEAR(found[1].cost->percent.value, 50, 1);
  ASSERT_TRUE(found[1].added_ms);
  EXPECT_NEAR(found[1].added_ms->value, 10, 0.5);
  ASSERT_TRUE(found[2].added_ms);
  EXPECT_NEAR(found[2].added_ms->value, -4, 0.5) << "a rung may be cheaper than the one before";
  ASSERT_TRUE(found[2].supply_img_per_s);
  EXPECT_NEAR(found[2].supply_img_per_s->value, 64 / 0.016, 64 / 0.016 * 0.06);
  ASSERT_TRUE(found[3].cost);
  EXPECT_NEAR(found[3].cost->percent.value, 100.0 / 6, 1);
  EXPECT_FALSE(found[3].added_ms) << "a branch is compared with the ceiling only";
}

TEST(Ladder, ARungThatDoesNotProveWhatItClaimsIsNotShown) {
  std::vector<isolate::LadderRung> rungs = {rung_of("gpu", "gpu"), rung_of("cold files", "queue"),
                                            rung_of("after", "cpu")};
  rungs[1].proof = "page_cache_cold";
  SweepResult sweep;
  measure(sweep, rungs[0], 0);
  measure(sweep, rungs[1], 20);
  measure(sweep, rungs[2], 20);
  summarise(sweep);
  std::vector<isolate::RungFinding> found = isolate::find_rungs(sweep, rungs, {});
  EXPECT_TRUE(says(found[1].unavailable, "page_cache_cold"));
  EXPECT_FALSE(found[1].cost);
  ASSERT_TRUE(found[2].added_ms);
  EXPECT_NEAR(found[2].added_ms->value, 10, 0.5) << "against the last rung that was measured";
  for (Repetition& repetition : sweep.rows[*rungs[1].row].repetitions) {
    repetition.result.facts["page_cache_cold"] = 1;
  }
  found = isolate::find_rungs(sweep, rungs, {});
  EXPECT_TRUE(found[1].unavailable.empty());
  EXPECT_TRUE(found[1].cost);
}

TEST(Ladder, AColdWindowIsNoLongerThanAnEpoch) {
  isolate::LadderRung rung = rung_of("cold files", "queue");
  rung.proof = "page_cache_cold";
  RunResult pilot;
  pilot.images_per_step = 64;
  EXPECT_FALSE(isolate::longest_window(rung, pilot));
  pilot.facts["page_cache_files"] = 6400;
  ASSERT_TRUE(isolate::longest_window(rung, pilot));
  EXPECT_LT(*isolate::longest_window(rung, pilot), 100 - 5);
  EXPECT_GT(*isolate::longest_window(rung, pilot), 80);
  pilot.facts["page_cache_files"] = 2;  // shards
  rung.examples = 6400;
  EXPECT_GT(*isolate::longest_window(rung, pilot), 80);
}

// What a ladder finds out about folders, packed sets and pixels.

class LadderDataTest : public testing::Test {
 protected:
  isolate::LadderData data(const std::string& feeder, const std::string& name) const {
    RunConfig config;
    config.fake_location = feeder;
    config.data_dir = (folder_ / name).string();
    config.feeder_threads = 1;
    return isolate::ladder_data(config);
  }
  TempFolder folder_;
};

TEST_F(LadderDataTest, FoldersOfFilesAreNotOpened) {
  folder_.write("images/class/no_image.JPEG", {});
  for (const char* feeder : {"queue", "queue:source=image-folder", "queue:source=memory", "cpu"}) {
    const isolate::LadderData found = data(feeder, "images");
    EXPECT_TRUE(found.is_folder) << feeder;
    EXPECT_EQ(found.kind, SampleKind::encoded);
    EXPECT_EQ(found.examples, 0U);
  }
}

TEST_F(LadderDataTest, PackedSetsSayWhatTheyHold) {
  std::string tar;
  for (const char* name : {"a.jpg", "a.cls", "b.jpg", "b.cls"}) {
    std::string content(512, '\0');
    content[0] = '7';
    tar += tar_header({.name = name, .size = "1"}) + content;
  }
  tar += std::string(1024, '\0');
  std::vector<std::byte> bytes(tar.size());
  std::ranges::transform(tar, bytes.begin(), [](char c) { return static_cast<std::byte>(c); });
  folder_.write("packed/x.tar", bytes);
  const isolate::LadderData packed = data("queue:source=webdataset", "packed");
  EXPECT_FALSE(packed.is_folder);
  EXPECT_EQ(packed.kind, SampleKind::encoded);
  EXPECT_EQ(packed.examples, 2U);

  const std::string begin = "{'descr': '|u1', 'fortran_order': False, 'shape': (3,";
  folder_.write("pixels/images.npy",
                npy_file(begin + " 4, 4, 3)}", std::vector<std::byte>(3 * 48)));
  folder_.write("pixels/labels.npy", npy_file(begin + ")}", std::vector<std::byte>(3)));
  const isolate::LadderData pixels = data("gpu", "pixels");
  EXPECT_EQ(pixels.kind, SampleKind::pixels);
  EXPECT_EQ(pixels.examples, 3U);
  EXPECT_THROW(data("queue:source=tfrecord", "pixels"), ConfigError);
}

}  // namespace
}  // namespace penstock
