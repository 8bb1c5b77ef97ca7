// SPDX-License-Identifier: Apache-2.0
// The source `memory`. The oracle is the image folder that it was filled from.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "dataflow/decoder.h"
#include "dataflow/error.h"
#include "tests/support/jpeg_writer.h"
#include "tests/support/source_fixture.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

/// 3 classes of 4, 7 and 10 files of 100 bytes; each file holds its name.
class MemorySourceTest : public SourceFixture {
 protected:
  MemorySourceTest() {
    for (const auto& [name, count] : {std::pair{"ant", 4}, {"cat", 7}, {"dog", 10}}) {
      for (int i = 0; i < count; ++i) {
        const std::string file = std::string(name) + "/" + std::to_string(i) + ".JPEG";
        write_text(folder_ / file, file + std::string(100 - file.size(), ' '));
      }
    }
    plan_.epochs = 2;
    plan_.shuffle = true;
  }
};

TEST_F(MemorySourceTest, ASetThatFitsComesAsItsFolderWould) {
  for (const std::int32_t ranks : {1, 3}) {
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      for (const bool shuffle : {false, true}) {
        for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{9}}) {
          plan_.rank = rank;
          plan_.ranks = ranks;
          plan_.shuffle = shuffle;
          plan_.first_sample = first;
          const auto files = open("image-folder"), memory = open("memory");
          EXPECT_EQ(memory->facts().size, files->facts().size);
          EXPECT_EQ(memory->facts().size_over_ranks, files->facts().size_over_ranks);
          EXPECT_EQ(memory->facts().classes, 3);
          EXPECT_EQ(all_of(*memory), all_of(*files));
        }
      }
    }
  }
}

TEST_F(MemorySourceTest, ServesWhatItHoldsWhenTheFilesAreGone) {
  const auto memory = open("memory");
  EXPECT_EQ(memory->facts().files, nullptr);
  std::filesystem::remove_all(folder_.path() / "cat");
  const std::vector<GivenSample> all = all_of(*memory);
  EXPECT_EQ(all.size(), 2 * 21U);
  for (const GivenSample& each : all) EXPECT_EQ(each.content.size(), 100U);
}

TEST_F(MemorySourceTest, LendsItsBytesWithoutCopies) {
  plan_.shuffle = false;
  const auto memory = open("memory");
  Sample sample;
  const std::byte* first = nullptr;
  for (int i = 0; i < 22; ++i) {
    ASSERT_TRUE(memory->next(sample));
    EXPECT_TRUE(sample.bytes.empty());
    if (i == 0) first = sample.content().data();
  }
  EXPECT_EQ(sample.content().data(), first) << "the second epoch begins with the same bytes";
}

TEST_F(MemorySourceTest, ALimitTakesWholeSamplesOfAllClassesInTurn) {
  plan_.epochs = 1;
  for (const auto& [limit, held, each] :
       {std::tuple{"memory:limit=650", 6U, 2U}, {"memory:999", 9U, 3U}, {"memory:1kB", 10U, 3U}}) {
    const auto memory = open(limit);
    EXPECT_EQ(memory->facts().size, held) << limit;
    std::map<std::int32_t, std::set<std::uint64_t>> by_class;
    for (const GivenSample& told : all_of(*memory)) by_class[told.label].insert(told.index);
    ASSERT_EQ(by_class.size(), 3U) << limit;
    for (const auto& [label, indices] : by_class) {
      EXPECT_GE(indices.size(), each) << limit << ", class " << label;
      EXPECT_LE(indices.size(), each + 1) << limit << ", class " << label;
    }
    EXPECT_TRUE(says(memory->facts().note, std::to_string(held) + " of 21 images"));
  }
  const std::string whole = open("memory")->facts().note;
  EXPECT_TRUE(says(whole, "21 of 21 images"));
}

TEST_F(MemorySourceTest, TooLittleMemoryForAnImageIsRefused) {
  EXPECT_TRUE(says(refusal("memory:limit=99"), "raise memory:limit"));
  plan_.ranks = 4;
  EXPECT_THROW(open("memory:limit=300"), ConfigError) << "three images for four ranks";
  plan_.ranks = 1;
  EXPECT_THROW(open("memory:limit=much"), ConfigError);
  EXPECT_THROW(open("memory:pixels=webp"), ConfigError);
  plan_.directory += "/nothing";
  EXPECT_THROW(open("memory"), ConfigError);
}

TEST_F(MemorySourceTest, AFileThatCannotBeReadFailsWhenItsTurnComesInEveryEpoch) {
  folder_.write("ant/1.JPEG", {});
  plan_.shuffle = false;
  const auto memory = open("memory");
  Sample sample;
  for (const std::uint64_t epoch : {0U, 1U}) {
    ASSERT_TRUE(memory->next(sample));
    EXPECT_TRUE(says(thrown_by<DataError>([&] { memory->next(sample); }), "ant/1.JPEG"));
    EXPECT_EQ(sample.index, 1U);
    EXPECT_EQ(sample.epoch, epoch);
    for (int i = 2; i < 21; ++i) ASSERT_TRUE(memory->next(sample));
    EXPECT_EQ(sample.index, 20U);
  }
  EXPECT_FALSE(memory->next(sample));
}

// ---- pixels -----------------------------------------------------------------

/// 2 classes of 4 photographs.
class PixelSourceTest : public SourceFixture {
 protected:
  PixelSourceTest() {
    for (int i = 0; i < 8; ++i) {
      folder_.write((i % 2 == 0 ? "cat/" : "dog/") + std::to_string(i) + ".JPEG",
                    encode_jpeg(make_test_image(60 + 3 * i, 50, 3, static_cast<unsigned>(i))));
    }
    plan_.image = {32, 40, 3};
  }

  std::string decoded(const Sample& sample) const {
    const DecoderEntry& entry = find_entry(decoder_table(), "jpeg");
    const auto decoder = entry.make(
        Options(entry.name, entry.options, parse_component("jpeg:crop=center,flip=false")));
    std::string row(plan_.image.elements(), '\0');
    Random random(1);
    decoder->decode(sample, {reinterpret_cast<std::byte*>(row.data()), plan_.image, DType::u8, 120},
                    random);
    return row;
  }

  static constexpr const char* kText = "memory:pixels='jpeg:crop=center,flip=false'";
};

TEST_F(PixelSourceTest, HoldsWhatTheDecoderMakesWhateverTheThreads) {
  for (const std::int32_t threads : {1, 3}) {
    plan_.threads = threads;
    const auto files = open("image-folder"), pixels = open(kText);
    Sample file, held;
    for (int i = 0; i < 8; ++i) {
      ASSERT_TRUE(files->next(file) && pixels->next(held));
      files->load(file);
      EXPECT_EQ(held.index, file.index);
      EXPECT_EQ(held.label, file.label);
      EXPECT_EQ(text_of(held.content()), decoded(file)) << i;
    }
    EXPECT_FALSE(pixels->next(held));
  }
}

TEST_F(PixelSourceTest, ALimitCountsPixels) {
  EXPECT_EQ(open(std::string(kText) + ",limit=20000")->facts().size, 5U);  // of 3840 bytes each
  EXPECT_THROW(open(std::string(kText) + ",limit=3000"), ConfigError);
}

TEST_F(PixelSourceTest, ADamagedImageFailsWhenItsTurnComes) {
  folder_.write("cat/2.JPEG", std::vector<std::byte>(40, std::byte{7}));
  const auto pixels = open(kText);
  EXPECT_EQ(pixels->facts().size, 8U);
  Sample sample;
  ASSERT_TRUE(pixels->next(sample));
  EXPECT_THROW(pixels->next(sample), DataError);
  ASSERT_TRUE(pixels->next(sample));
  EXPECT_EQ(sample.index, 2U);
}

TEST_F(MemorySourceTest, AStopRequestEndsTheFilling) {
  std::stop_source stop;
  plan_.stop = stop.get_token();
  EXPECT_NO_THROW(open("memory"));
  stop.request_stop();
  for (const char* const source : {"memory", "image-folder", "image-folder:manifest=off"}) {
    EXPECT_EQ(thrown_by<Error>([&] { open(source); }),
              "stopped while '" + plan_.directory + "' was being read");
  }
}

}  // namespace
}  // namespace penstock
