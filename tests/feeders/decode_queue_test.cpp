// SPDX-License-Identifier: Apache-2.0
// The queue feeder: epochs, order, damage, options and chains; the same pixels from every source
// and in every form.
#include <set>

#include "dataflow/error.h"
#include "dataflow/images/normalisation.h"
#include "tests/feeders/decode_queue_fixture.h"
#include "tests/support/allocation_count.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

TEST_F(DecodeQueueTest, EachFileOncePerEpochOverRanksAndThreads) {
  data_.epochs = 2;
  for (const std::int32_t threads : {1, 3}) {
    for (const std::int32_t ranks : {1, 4}) {
      std::multiset<int> seen, expected;
      for (int index = 0; index < kFiles; ++index) {
        expected.insert(index);
        expected.insert(index);
      }
      for (std::int32_t rank = 0; rank < ranks; ++rank) {
        data_.rank = rank;
        data_.ranks = ranks;
        run(*make("queue", threads), [&](const Batch& batch) {
          for (std::int32_t row = 0; row < batch.valid; ++row) {
            const std::byte* pixels =
                batch.pixels.data() + static_cast<std::size_t>(row) * spec_.row_bytes();
            const int index = index_of(pixels);
            EXPECT_EQ(index_of(pixels + spec_.row_bytes() - 3), index);
            EXPECT_EQ(batch.labels[static_cast<std::size_t>(row)], index / (kFiles / kClasses));
            seen.insert(index);
          }
          return true;
        });
      }
      EXPECT_EQ(seen, expected) << threads << " threads, " << ranks << " ranks";
    }
  }
}

TEST_F(DecodeQueueTest, StrictOrderRepeatsEveryByte) {
  data_.order = Order::strict;
  data_.epochs = 2;
  std::vector<std::byte> expected;
  for (const std::int32_t threads : {1, 2, 5}) {
    const std::vector<std::byte> bytes = pixels_of(make("queue", threads));
    if (threads == 1) expected = bytes;
    EXPECT_FALSE(bytes.empty());
    EXPECT_EQ(bytes, expected) << threads << " threads";
  }
}

TEST_F(DecodeQueueTest, DamagedFilesFailOrAreSkippedByName) {
  folder_.write(name_of(7), std::vector<std::byte>(50, std::byte{0x42}));
  std::filesystem::resize_file(folder_.path() / name_of(33), 100);
  data_.epochs = 1;
  const auto count = [](std::int64_t& images) {
    return [&images](const Batch& batch) {
      images += batch.valid;
      return true;
    };
  };
  std::int64_t images = 0;
  EXPECT_THROW(run(*make("queue", 2), count(images)), DataError);
  images = 0;
  run(*make("queue", 2, {BadSamplePolicy::Action::skip}), count(images));
  EXPECT_EQ(images, kFiles - 2);
  EXPECT_THROW(run(*make("queue", 2, {BadSamplePolicy::Action::skip, 1}), count(images)),
               DataError);
  EXPECT_TRUE(mentions(probe_.notes(), name_of(7)));
  EXPECT_TRUE(mentions(probe_.notes(), name_of(33)));
}

TEST_F(DecodeQueueTest, TheSteadyStateAllocatesNothing) {
  // Equal files and crops, so that no worker meets a larger one after its first.
  const TempFolder folder;
  const std::vector<std::byte> jpeg = encode_jpeg(make_test_image(60, 50));
  for (int i = 0; i < 8; ++i) folder.write("class/" + std::to_string(i) + ".JPEG", jpeg);
  data_.directory = folder.path().string();
  const Counter& threads = probe_.counter("decode_threads");
  std::int64_t batches = 0, before = 0, after = 0;
  for (const char* text : {"queue:crop=full", "queue:crop=full,decode=full,source=memory",
                           "queue:decode=raw,flip=true", "queue:crop=full,chain=tensorpack"}) {
    const std::int64_t earlier = threads.value();
    batches = before = after = 0;
    run(*make(text, 2), [&](const Batch&) {
      if (batches == 0 && threads.value() < earlier + 2) return true;
      if (++batches == 20) before = allocation_count();
      if (batches == 120) after = allocation_count();
      return batches < 120;
    });
    EXPECT_GT(before, 0) << text;
    EXPECT_EQ(after - before, 0) << text;
  }
}

TEST_F(DecodeQueueTest, HoweverFilesAreReadAndWhereverThreadsRunPixelsAreTheSame) {
  const std::vector<std::byte> expected = pass("queue");
  EXPECT_FALSE(expected.empty());
  for (const char* text : {"queue:io=pread", "queue:io=direct", "queue:io=uring",
                           "queue:io=direct,readahead=8", "queue:cores=auto,threads=auto"}) {
    EXPECT_EQ(pass(text), expected) << text;
  }
  EXPECT_TRUE(probe_.facts().contains("decode_thread_0_core"));
  EXPECT_TRUE(mentions(probe_.notes(), "decode threads: thread 0 on core "));
}

TEST_F(DecodeQueueTest, WrongOptionsAndMissingDataAreRefusedBeforeAnythingStarts) {
  for (const char* const text :
       {"queue:crop=left", "queue:chain=keras", "queue:resize=lanczos", "queue:color=sepia",
        "queue:source=nowhere", "queue:threads=2", "queue:io=mmap", "queue:io=direct,source=memory",
        "queue:cores=65000", "queue:cores=all", "queue:numa=999"}) {
    EXPECT_THROW(make(text, 1), ConfigError) << text;
  }
  EXPECT_NO_THROW(make("queue:center,flip=false,upsampling=plain,source=image-folder", 1));
  spec_.pixel = DType::f32;
  EXPECT_THROW(make("queue", 1), ConfigError);
  spec_.pixel = DType::u8;
  EXPECT_THROW(make("queue:normalise=f32", 1), ConfigError) << "bytes were agreed on";
  data_.directory += "/nothing";
  EXPECT_THROW(make("queue", 1), ConfigError);
}

TEST_F(DecodeQueueTest, KnowsHowMuchDataItHas) {
  const DataExtent extent = make("queue", 1)->extent();
  EXPECT_EQ(extent.examples, static_cast<std::uint64_t>(kFiles));
  EXPECT_EQ(extent.classes, kClasses);
}

TEST_F(DecodeQueueTest, WithoutAugmentationNothingIsLeftToTheSeed) {
  data_.augment = false;
  data_.shuffle = false;
  data_.epochs = 1;
  std::vector<std::vector<std::byte>> passes;
  for (const char* text :
       {"queue", "queue:crop=random,flip=true", "queue:crop=center,flip=false"}) {
    data_.seed += 1;
    passes.push_back(pixels_of(make(text, 1)));
  }
  EXPECT_EQ(passes[0], passes[1]);
  EXPECT_EQ(passes[0], passes[2]);
}

TEST_F(DecodeQueueTest, ChainsDependOnTheSeedAndOnNothingElse) {
  for (const char* text : {"queue:chain=tf_cnn_benchmarks,color=tf", "queue:chain=tensorpack",
                           "queue:color=tf_yiq,resize=round_robin"}) {
    data_.order = Order::strict;
    data_.epochs = 2;
    std::vector<std::vector<std::byte>> passes;
    for (const std::int32_t threads : {1, 4, 4}) {
      if (passes.size() == 2) data_.seed += 1;
      passes.push_back(pixels_of(make(text, threads)));
    }
    EXPECT_EQ(passes[0], passes[1]) << text;
    EXPECT_NE(passes[0], passes[2]) << text;
  }
}

TEST_F(DecodeQueueTest, EvaluationTakesTheCentreOfEachChain) {
  data_.augment = false;
  data_.shuffle = false;
  const std::pair<const char*, const char*> cases[] = {
      {"queue:chain=torchvision", "queue:crop=center,flip=false"},
      {"queue:chain=tf_cnn_benchmarks,color=tf",
       "queue:crop=tf_center,flip=false,resize=tf_bilinear"},
      {"queue:chain=tensorpack", "queue:crop=tensorpack_center,flip=false,resize=cv_bicubic"},
      {"queue:chain=tensorpack,crop=full", "queue:crop=full,flip=false,resize=cv_bicubic"},
      {"queue:crop=tf_random", "queue:crop=tf_center,flip=false"}};
  for (const auto& [chain, parts] : cases) {
    data_.augment = false;
    const std::vector<std::byte> pixels = pass(chain);
    data_.seed += 1;
    EXPECT_EQ(pass(chain), pixels) << chain;
    data_.augment = true;
    EXPECT_EQ(pass(parts), pixels) << chain;
  }
}

// ---- sources and forms ------------------------------------------------------

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

TEST_F(DecodeQueueTest, NormalisedPixelsMatchTheBytes) {
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

TEST_F(DecodeQueueTest, RawPixelsMatchTheCentre) {
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

TEST_F(DecodeQueueTest, ATooLargeDataSetIsReported) {
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
  for (const char* const text :
       {"queue:decode=half", "queue:decode=raw,crop=random", "queue:decode=raw,crop=tf_random",
        "queue:decode=raw,color=tf", "queue:decode=raw,source=image-folder",
        "queue:source=memory:pixels=jpeg", "queue:readahead=-1", "queue:readahead=5000",
        "queue:decode=raw,source=memory:pixels=jpeg", "queue:source=memory:size=3"}) {
    EXPECT_THROW(make(text, 1), ConfigError) << text;
  }
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
