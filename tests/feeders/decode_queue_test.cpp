// SPDX-License-Identifier: Apache-2.0
// The queue feeder over real JPEG files: each is of one colour, which encodes its index.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>

#include "dataflow/error.h"
#include "dataflow/host_device.h"
#include "feeders/feeder.h"
#include "tests/support/allocation_count.h"
#include "tests/support/jpeg_writer.h"
#include "tests/support/temp_folder.h"

namespace penstock {
namespace {

constexpr int kFiles = 60, kClasses = 4;

class DecodeQueueTest : public testing::Test {
 protected:
  DecodeQueueTest() {
    for (int index = 0; index < kFiles; ++index) {
      // Four levels of each colour, far enough apart to survive compression.
      const auto level = [&](int digit) { return static_cast<std::uint8_t>(40 + 55 * digit); };
      folder_.write(name_of(index),
                    encode_jpeg(make_flat_image(30 + index, 70 - index, level(index / 16),
                                                level(index / 4 % 4), level(index % 4))));
    }
    data_.directory = folder_.path().string();
    data_.classes = kClasses;
  }

  /// Files are numbered in the order in which the source lists them.
  static std::string name_of(int index) {
    return "class" + std::to_string(index / (kFiles / kClasses)) + "/" +
           std::to_string(100 + index) + ".JPEG";
  }
  static int index_of(const std::byte* pixel) {
    const auto digit = [&](int c) { return (std::to_integer<int>(pixel[c]) - 40 + 27) / 55; };
    return digit(0) * 16 + digit(1) * 4 + digit(2);
  }

  std::unique_ptr<Feeder> make(std::string_view text, std::int32_t threads,
                               BadSamplePolicy policy = {}) {
    const FeederEntry& entry = find_entry(feeder_table(), "queue");
    const Options options(entry.name, entry.options, parse_component(text));
    return entry.make(FeederContext{.spec = spec_,
                                    .device = device_,
                                    .clock = clock_,
                                    .options = options,
                                    .data = data_,
                                    .probe = probe_,
                                    .on_bad_sample = policy,
                                    .threads = threads});
  }

  /// Runs `feeder`, and gives every batch to `read` until that returns false.
  template <typename Read>
  void run(Feeder& feeder, Read read) {
    BatchRing ring(spec_, 3, device_, MemoryKind::host, readers_, Order::relaxed, clock_);
    std::stop_source stop;
    std::jthread reader([&] {
      while (const ReadLease lease = ring.next(0, {})) {
        if (!read(lease.batch())) stop.request_stop();
      }
    });
    try {
      feeder.run(ring, stop.get_token());
    } catch (...) {
      ring.close();
      throw;
    }
    ring.close();
  }

  std::vector<std::byte> pass(std::string_view text);

  TempFolder folder_;
  DataPlan data_;
  BatchSpec spec_{.images = 8, .image = {32, 32, 3}, .classes = kClasses};
  SteadyClock clock_;
  HostDevice device_{clock_};
  Device* readers_[1] = {&device_};
  Probe probe_;
};

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
    std::vector<std::byte> bytes;
    run(*make("queue", threads), [&](const Batch& batch) {
      bytes.insert(bytes.end(), batch.pixels.begin(), batch.pixels.end());
      return true;
    });
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
  std::string notes;
  for (const std::string& note : probe_.notes()) notes += note + "\n";
  EXPECT_NE(notes.find(name_of(7)), std::string::npos) << notes;
  EXPECT_NE(notes.find(name_of(33)), std::string::npos) << notes;
}

TEST_F(DecodeQueueTest, TheSteadyStateAllocatesNothing) {
  // Equal files and crops: no worker meets a larger one later than its first.
  const TempFolder folder;
  const std::vector<std::byte> jpeg = encode_jpeg(make_test_image(60, 50));
  for (int i = 0; i < 8; ++i) folder.write("class/" + std::to_string(i) + ".JPEG", jpeg);
  data_.directory = folder.path().string();
  const Counter& threads = probe_.counter("decode_threads");
  std::int64_t batches = 0, before = 0, after = 0;
  for (const char* text : {"queue:crop=full", "queue:crop=full,decode=full,source=memory",
                           "queue:decode=raw,flip=true"}) {
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

TEST_F(DecodeQueueTest, WrongOptionsAndMissingDataAreRefusedBeforeAnythingStarts) {
  EXPECT_THROW(make("queue:crop=left", 1), ConfigError);
  EXPECT_THROW(make("queue:source=nowhere", 1), ConfigError);
  EXPECT_NO_THROW(make("queue:center,flip=false,upsampling=plain,source=image-folder", 1));
  spec_.pixel = DType::f32;
  EXPECT_THROW(make("queue", 1), ConfigError);
  spec_.pixel = DType::u8;
  data_.directory += "/nothing";
  EXPECT_THROW(make("queue", 1), ConfigError);
}

// ---- where pixels come from -------------------------------------------------

/// All pixels of one epoch, in order.
std::vector<std::byte> DecodeQueueTest::pass(std::string_view text) {
  data_.order = Order::strict;
  data_.epochs = 1;
  std::vector<std::byte> pixels;
  const std::unique_ptr<Feeder> feeder = make(text, 2);
  run(*feeder, [&](const Batch& batch) {
    const auto valid = static_cast<std::size_t>(batch.valid) * spec_.row_bytes();
    pixels.insert(pixels.end(), batch.pixels.begin(),
                  batch.pixels.begin() + static_cast<std::ptrdiff_t>(valid));
    return true;
  });
  return pixels;
}

TEST_F(DecodeQueueTest, MemoryAndWholeImagesGiveTheSameBatches) {
  for (const char* crop : {"queue:center,flip=false", "queue:random"}) {
    const std::string text = crop;
    const std::vector<std::byte> files = pass(text);
    EXPECT_EQ(files.size(), kFiles * spec_.row_bytes());
    EXPECT_EQ(pass(text + ",source=memory"), files);
    EXPECT_EQ(pass(text + ",source='memory:limit=512MiB'"), files);
    EXPECT_EQ(pass(text + ",decode=full"), files);
    EXPECT_EQ(pass(text + ",decode=full,source=memory"), files);
    EXPECT_EQ(pass(text + ",decode=region"), files);
  }
}

TEST_F(DecodeQueueTest, RawPixelsAreThoseOfTheCentre) {
  const std::vector<std::byte> files = pass("queue:center,flip=false");
  EXPECT_EQ(pass("queue:decode=raw"), files);
  EXPECT_EQ(pass("queue:decode=raw,crop=center,source='memory:limit=1MiB'"), files);
  EXPECT_EQ(pass("queue:decode=raw,crop=full"), pass("queue:crop=full,flip=false"));
  data_.augment = false;
  EXPECT_EQ(pass("queue:decode=raw,flip=true"), files);
}

TEST_F(DecodeQueueTest, ASetThatIsTooLargeForMemoryIsSaid) {
  const std::string text = "queue:decode=raw,source='memory:limit=31kB'";  // rows of 3072 bytes
  EXPECT_EQ(pass(text).size(), 10 * spec_.row_bytes());
  EXPECT_EQ(make(text, 1)->extent().examples, 10U);
  ASSERT_FALSE(probe_.notes().empty());
  EXPECT_NE(probe_.notes().front().find("10 of 60 images"), std::string::npos)
      << probe_.notes().front();
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
  EXPECT_THROW(make("queue:decode=raw,source=image-folder", 1), ConfigError);
  EXPECT_THROW(make("queue:source=memory:pixels=jpeg", 1), ConfigError);
  EXPECT_THROW(make("queue:decode=raw,source=memory:pixels=jpeg", 1), ConfigError);
  EXPECT_THROW(make("queue:source=memory:size=3", 1), ConfigError);
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
    std::vector<std::byte>& pixels = passes.emplace_back();
    const std::unique_ptr<Feeder> feeder = make(text, 1);
    run(*feeder, [&](const Batch& batch) {
      pixels.insert(pixels.end(), batch.pixels.begin(), batch.pixels.end());
      return true;
    });
  }
  EXPECT_EQ(passes[0], passes[1]);
  EXPECT_EQ(passes[0], passes[2]);
}

}  // namespace
}  // namespace penstock
