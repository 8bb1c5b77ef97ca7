// SPDX-License-Identifier: Apache-2.0
// Packed sets in memory; the oracle is the source that reads the files.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "dataflow/error.h"
#include "tests/support/npy_file.h"
#include "tests/support/packed_images.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using PackedMemoryTest = PackedImagesTest;

TEST_F(PackedMemoryTest, ASetThatFitsComesAsItsShardsWould) {
  plan_.epochs = 2;
  plan_.ranks = 2;
  for (const auto& [packed, source] : {std::pair{"tfrecord shards=3", "tfrecord"},
                                       {"webdataset shards=2 label=cls", "webdataset"}}) {
    pack(packed);
    for (const bool shuffle : {false, true}) {
      for (plan_.rank = 0; plan_.rank < 2; ++plan_.rank) {
        for (plan_.first_sample = 0; plan_.first_sample < 15; plan_.first_sample += 7) {
          plan_.shuffle = shuffle;
          const auto shards = open(source), memory = open("memory");
          EXPECT_EQ(memory->facts().classes, shards->facts().classes);
          EXPECT_EQ(memory->facts().size, shards->facts().size);
          EXPECT_EQ(memory->facts().files, nullptr);
          EXPECT_EQ(all_of(*memory), all_of(*shards)) << packed;
        }
      }
    }
    plan_.first_sample = 0;
  }
}

TEST_F(PackedMemoryTest, CompressedShardsAreHeldOpened) {
  pack("webdataset shards=2 compress=gzip label=cls");
  const auto memory = open("memory");
  std::filesystem::remove_all(folder_ / "packed");
  EXPECT_TRUE(std::ranges::is_permutation(read(*memory), samples_));
  EXPECT_TRUE(says(memory->facts().note, "21 of 21 images"));
}

TEST_F(PackedMemoryTest, WhatDoesNotFitIsLeftOutAtRandom) {
  pack("tfrecord shards=3");
  std::map<std::uint64_t, std::string> whole;
  for (const GivenSample& told : all_of(*open("tfrecord"))) whole[told.index] = told.content;
  std::set<std::set<std::uint64_t>> choices;
  std::set<std::int32_t> labels;
  for (plan_.seed = 1; plan_.seed <= 5; ++plan_.seed) {
    const auto memory = open("memory:limit=20kB");
    EXPECT_TRUE(says(memory->facts().note, "chosen at random"));
    std::set<std::uint64_t> held;
    std::uint64_t bytes = 0, last = 0;
    for (const GivenSample& told : all_of(*memory)) {
      EXPECT_EQ(told.content, whole.at(told.index));
      EXPECT_TRUE(held.empty() || told.index > last) << "in the order of the set";
      held.insert(last = told.index);
      labels.insert(told.label);
      bytes += told.content.size();
    }
    EXPECT_EQ(held.size(), memory->facts().size);
    EXPECT_LE(bytes, 20'000U);
    EXPECT_GT(bytes, 10'000U) << "no image has more than 5000";
    choices.insert(held);
  }
  EXPECT_GT(choices.size(), 1U);
  EXPECT_EQ(labels.size(), 3U);
  EXPECT_TRUE(says(refusal("memory:limit=0"), "none of the 21 images"));
}

TEST_F(PackedMemoryTest, ADamagedRecordFailsWhenItsTurnComes) {
  pack("tfrecord");
  edit("train-00000-of-00001", [](std::string& bytes) { bytes[bytes.size() - 20] ^= 1; });
  plan_.epochs = 2;
  const std::vector<GivenSample> shards = all_of(*open("tfrecord")),
                                 memory = all_of(*open("memory"));
  EXPECT_EQ(memory, shards);
  EXPECT_TRUE(says(memory[20].content, "sample 20"));
  EXPECT_EQ(memory[41].content, memory[20].content);
}

TEST_F(PackedMemoryTest, HoldsPixelsOfSourcesThatGiveThem) {
  std::vector<std::byte> pixels(6 * 4 * 5 * 3);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::byte>(i % 251);
  const auto header = [](const std::string& shape) {
    return "{'descr': '|u1', 'fortran_order': False, 'shape': (" + shape + "), }";
  };
  constexpr std::byte kLabels[] = {std::byte{0}, std::byte{1}, std::byte{2},
                                   std::byte{2}, std::byte{1}, std::byte{0}};
  folder_.write("packed/images.npy", npy_file(header("6, 4, 5, 3"), pixels));
  folder_.write("packed/labels.npy", npy_file(header("6,"), kLabels));
  const auto files = open("raw"), memory = open("memory");
  EXPECT_EQ(memory->facts().kind, SampleKind::pixels);
  Sample file, held;
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(files->next(file) && memory->next(held));
    files->load(file);
    EXPECT_EQ(held.layout, file.layout);
    EXPECT_EQ(held.label, file.label);
    EXPECT_TRUE(std::ranges::equal(held.content(), file.content()));
  }
  EXPECT_FALSE(memory->next(held));
  plan_.image = {4, 4, 3};
  EXPECT_TRUE(says(refusal("memory:pixels=jpeg"), "raw already gives pixels"));
}

TEST_F(PackedMemoryTest, TheSourceBehindItCanBeNamedWithItsOptions) {
  pack("tfrecord base=5");
  EXPECT_EQ(all_of(*open("memory:from='tfrecord:label_base=5'")),
            all_of(*open("tfrecord:label_base=5")));
  EXPECT_TRUE(says(refusal("memory:from=memory"), "leave from out"));
  EXPECT_TRUE(says(refusal("memory:from=tfrecrod"), "tfrecord"));
}

}  // namespace
}  // namespace penstock
