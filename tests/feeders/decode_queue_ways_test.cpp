// SPDX-License-Identifier: Apache-2.0
// The queue feeder gives the same pixels from every source and in every form.
#include "dataflow/error.h"
#include "dataflow/images/normalisation.h"
#include "tests/feeders/decode_queue_fixture.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

TEST_F(DecodeQueueTest, MemoryAndWholeImagesGiveTheSameBatches) {
  for (const char* crop : {"queue:center,flip=false", "queue:random"}) {
    const std::string text = crop;
    const std::vector<std::byte> files = pass(text);
    EXPECT_EQ(files.size(), kFiles * spec_.row_bytes());
    EXPECT_EQ(pass(text + ",source=memory"), files);
    EXPECT_EQ(pass(text + ",readahead=5"), files);
    EXPECT_EQ(pass(text + ",source='memory:limit=512MiB'"), files);
    EXPECT_EQ(pass(text + ",decode=full"), files);
    EXPECT_EQ(pass(text + ",decode=full,source=memory"), files);
    EXPECT_EQ(pass(text + ",decode=region"), files);
  }
}

TEST_F(DecodeQueueTest, NormalisedPixelsAreThoseOfTheBytes) {
  const BatchSpec bytes = spec_;
  for (const char* const decode : {"random", "random,decode=full", "decode=raw"}) {
    spec_ = bytes;
    const std::vector<std::byte> pixels = pass(std::string("queue:") + decode);
    for (const char* const type : {"f32", "f16"}) {
      spec_ = bytes;
      spec_.normalised = true;
      spec_.pixel = type == std::string("f32") ? DType::f32 : DType::f16;
      std::vector<std::byte> expected(pixels.size() * size_of(spec_.pixel));
      normalise({reinterpret_cast<const std::uint8_t*>(pixels.data()), pixels.size()}, 3,
                spec_.pixel, expected.data());
      EXPECT_EQ(pass(std::string("queue:") + decode + ",normalise=" + type), expected) << type;
    }
  }
}

TEST_F(DecodeQueueTest, RawPixelsAreThoseOfTheCentre) {
  const std::vector<std::byte> files = pass("queue:center,flip=false");
  EXPECT_EQ(pass("queue:decode=raw"), files);
  EXPECT_EQ(pass("queue:decode=raw,crop=center,source='memory:limit=1MiB'"), files);
  EXPECT_EQ(pass("queue:decode=raw,crop=full"), pass("queue:crop=full,flip=false"));
  for (const char* chain : {"tf_cnn_benchmarks", "tensorpack"}) {
    const std::string text = std::string("queue:decode=raw,chain=") + chain;
    const std::vector<std::byte> raw = pass(text);
    data_.augment = false;
    EXPECT_EQ(raw, pass(std::string("queue:chain=") + chain));
    data_.augment = true;
  }
  data_.augment = false;
  EXPECT_EQ(pass("queue:decode=raw,flip=true"), files);
}

TEST_F(DecodeQueueTest, ASetThatIsTooLargeForMemoryIsSaid) {
  const std::string text = "queue:decode=raw,source='memory:limit=31kB'";  // rows of 3072 bytes
  EXPECT_EQ(pass(text).size(), 10 * spec_.row_bytes());
  EXPECT_EQ(make(text, 1)->extent().examples, 10U);
  ASSERT_FALSE(probe_.notes().empty());
  EXPECT_TRUE(says(probe_.notes().front(), "10 of 60 images"));
}

TEST_F(DecodeQueueTest, DamagedFilesAreBadSamplesInMemoryToo) {
  folder_.write(name_of(7), std::vector<std::byte>(50, std::byte{0x42}));
  data_.epochs = 1;
  for (const char* text : {"queue:source=memory", "queue:decode=raw", "queue:decode=full"}) {
    EXPECT_THROW(run(*make(text, 2), [](const Batch&) { return true; }), DataError) << text;
    std::int64_t images = 0;
    run(*make(text, 2, {BadSamplePolicy::Action::skip}), [&](const Batch& batch) {
      images += batch.valid;
      return true;
    });
    EXPECT_EQ(images, kFiles - 1) << text;
  }
}

TEST_F(DecodeQueueTest, ExtraWorkTakesItsTimeAndLeavesThePixels) {
  const std::vector<std::byte> files = pass("queue");
  for (const char* text : {"queue:extra_us=1500", "queue:extra_us=1500,decode=raw"}) {
    const std::int64_t before = probe_.values().at("decode_ns");
    const std::vector<std::byte> slowed = pass(text);
    EXPECT_GE(probe_.values().at("decode_ns") - before, kFiles * 1'500'000) << text;
    EXPECT_EQ(slowed.size(), files.size());
    EXPECT_TRUE(slowed == files || text != std::string("queue:extra_us=1500"));
  }
  EXPECT_THROW(make("queue:extra_us=-1", 1), ConfigError);
  EXPECT_THROW(make("queue:extra_us=1ms", 1), ConfigError);
}

TEST_F(DecodeQueueTest, WaysToDecodeThatContradictTheSourceAreRefused) {
  EXPECT_THROW(make("queue:decode=half", 1), ConfigError);
  EXPECT_THROW(make("queue:decode=raw,crop=random", 1), ConfigError);
  EXPECT_THROW(make("queue:decode=raw,crop=tf_random", 1), ConfigError);
  EXPECT_THROW(make("queue:decode=raw,color=tf", 1), ConfigError);
  EXPECT_THROW(make("queue:decode=raw,source=image-folder", 1), ConfigError);
  EXPECT_THROW(make("queue:source=memory:pixels=jpeg", 1), ConfigError);
  EXPECT_THROW(make("queue:readahead=-1", 1), ConfigError);
  EXPECT_THROW(make("queue:readahead=5000", 1), ConfigError);
  EXPECT_THROW(make("queue:decode=raw,source=memory:pixels=jpeg", 1), ConfigError);
  EXPECT_THROW(make("queue:source=memory:size=3", 1), ConfigError);
}

TEST_F(DecodeQueueTest, PixelsOfASourceAreCopiedCroppedOrLeftAloneInEvaluation) {
  const TempFolder folder;
  std::vector<std::byte> rows, records;
  for (int number = 0; number < 10; ++number) {
    records.push_back(std::byte(number % kClasses));
    for (int c = 0; c < 3; ++c) records.insert(records.end(), 1024, std::byte(20 * number + c));
    for (int i = 0; i < 3072; ++i) rows.push_back(std::byte(20 * number + i % 3));
  }
  folder.write("test_batch.bin", records);
  data_.directory = folder.path().string();
  data_.shuffle = false;
  const std::string source = ",source='cifar10:split=test'";
  EXPECT_EQ(pass("queue:extra_us=0" + source), rows);
  EXPECT_EQ(pass("queue:crop=full" + source), rows);
  EXPECT_NE(pass("queue:crop=pad4" + source), rows);    // adds black
  EXPECT_EQ(pass("queue:crop=random" + source), rows);  // a single colour stays the same
  for (const char* option : {"decode=full", "upsampling=plain", "max_pixels=9"}) {
    EXPECT_THROW(make("queue:" + std::string(option) + source, 1), ConfigError) << option;
  }
  EXPECT_THROW(make("queue:decode=raw" + source, 1), ConfigError);
  data_.augment = false;
  EXPECT_EQ(pass("queue:crop=pad4,flip=true" + source), rows);
}

}  // namespace
}  // namespace penstock
