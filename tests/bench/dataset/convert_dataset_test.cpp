// SPDX-License-Identifier: Apache-2.0
// Writes data sets in every format, reads them back, and checks every sample.
#include "bench/dataset/convert_dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "bench/dataset/check_dataset.h"
#include "bench/dataset/open_dataset.h"
#include "dataflow/datasets/detect_source.h"
#include "dataflow/error.h"
#include "tests/dataflow/images/decoded_rows.h"
#include "tests/support/jpeg_writer.h"
#include "tests/support/npy_file.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using Samples = std::vector<std::pair<std::int32_t, std::string>>;

/// Labels and bytes of all samples, sorted by label and content.
Samples samples_of(const std::string& directory, const std::string& source = "auto") {
  const std::unique_ptr<Source> opened =
      dataset::open_dataset({.directory = directory, .source = source});
  Samples samples;
  for (Sample sample; opened->next(sample);) {
    opened->load(sample);
    const auto* const text = reinterpret_cast<const char*>(sample.content().data());
    samples.emplace_back(sample.label, std::string(text, sample.content().size()));
  }
  std::ranges::sort(samples);
  return samples;
}

/// Classes of 3, 0 and 8 JPEGs of different sizes. One has bytes after the end of the image, where
/// a decoder does not look.
class ConvertDatasetTest : public testing::Test {
 protected:
  ConvertDatasetTest() {
    std::filesystem::create_directories(folder_ / "in/b");
    for (const auto& [name, count] : {std::pair{"a", 3}, {"c", 8}}) {
      for (int i = 0; i < count; ++i) {
        std::vector<std::byte> bytes =
            encode_jpeg(make_test_image(20 + 7 * i, 30 + i, 3, static_cast<std::uint64_t>(i)));
        if (i == 2) bytes.resize(bytes.size() + 9);
        folder_.write(std::string("in/") + name + "/" + std::to_string(i) + ".JPEG", bytes);
      }
    }
    order_.directory = (folder_ / "in").string();
    order_.source = "auto";
    order_.out = (folder_ / "out").string();
    order_.threads = 2;
  }
  dataset::ConvertedDataset convert(const std::string& to) {
    return dataset::convert_dataset(order_, find_entry(datasets::dataset_writer_table(), to), {});
  }
  bool nothing_is_left() const {
    return !std::filesystem::exists(order_.out) &&
           !std::filesystem::exists(order_.out + ".partial");
  }

  TempFolder folder_;
  dataset::ConvertDataset order_;
};

TEST_F(ConvertDatasetTest, WritesEveryFormatSoThatItReadsBack) {
  const Samples before = samples_of(order_.directory);
  ASSERT_EQ(before.size(), 11U);
  for (const datasets::DatasetWriterEntry* format : datasets::dataset_writer_table().entries) {
    if (format->image_size > 0) continue;
    for (const std::uint64_t shards : {1U, 3U, 100U}) {
      SCOPED_TRACE(std::string(format->name) + ", " + std::to_string(shards));
      order_.out = (folder_ / (std::string(format->name) + std::to_string(shards))).string();
      order_.shards = shards;
      const dataset::ConvertedDataset converted = convert(std::string(format->name));
      EXPECT_EQ(converted.samples, 11U);
      EXPECT_EQ(converted.shards,
                format->shards > 0 ? format->shards : std::min<std::uint64_t>(shards, 11));
      EXPECT_GT(converted.bytes_before, 0U);
      EXPECT_GT(converted.bytes_after, 0U);
      EXPECT_EQ(datasets::detect_source(order_.out), format->name);
      EXPECT_EQ(samples_of(order_.out), before);
    }
  }
}

/// Converted sets of pixels hold the centre of each image, as the jpeg decoder makes it.
TEST_F(ConvertDatasetTest, FormatsOfPixelsHoldTheCentreOfEachImage) {
  for (const auto& [name, size, shards, given] : {std::tuple{"raw", 20, 2U, 20},
                                                  {"raw", 224, 1U, 0},
                                                  {"cifar10", 32, 5U, 0},
                                                  {"hdf5", 24, 1U, 24}}) {
    if (std::ranges::none_of(datasets::dataset_writer_table().entries,
                             [&](const auto* entry) { return entry->name == name; })) {
      continue;  // built without HDF5
    }
    SCOPED_TRACE(std::string(name) + ", " + std::to_string(size));
    order_.out = (folder_ / (name + std::to_string(size))).string();
    order_.image_size = given;
    order_.shards = shards;
    EXPECT_EQ(convert(name).shards, shards);
    EXPECT_EQ(datasets::detect_source(order_.out), name);
    const auto decoder = make_decoder("jpeg:crop=center,flip=false");
    const auto images = dataset::open_dataset({.directory = order_.directory}),
               written = dataset::open_dataset({.directory = order_.out});
    ASSERT_EQ(written->facts().size, 11U);
    for (Sample image, pixels; images->next(image) && written->next(pixels);) {
      images->load(image);
      written->load(pixels);
      const auto expected = decoded_row(*decoder, image, {size, size, 3}, Random(0));
      ASSERT_EQ(pixels.label, image.label);
      ASSERT_EQ(pixels.content().size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const std::size_t at = pixels.layout.planar ? i % 3 * (expected.size() / 3) + i / 3 : i;
        ASSERT_EQ(pixels.content()[at], expected[i]) << image.file << ", byte " << i;
      }
    }
  }
  order_.image_size = 20;
  order_.out = (folder_ / "never").string();
  EXPECT_THROW(convert("cifar10"), ConfigError);
  EXPECT_THROW(convert("tfrecord"), ConfigError);
}

TEST_F(ConvertDatasetTest, CutsIntoShardsBySize) {
  order_.shard_bytes = 2000;
  EXPECT_GT(convert("webdataset").shards, 2U);
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(order_.out)) {
    files += entry.path().extension() == ".tar" ? 1 : 0;
  }
  EXPECT_GT(files, 2U);
}

TEST_F(ConvertDatasetTest, ShufflesByTheSeed) {
  const auto labels_in_order = [&](const std::string& out) {
    order_.out = (folder_ / out).string();
    convert("webdataset");
    const auto source = dataset::open_dataset({.directory = order_.out});
    std::string labels;
    for (Sample sample; source->next(sample);) labels += std::to_string(sample.label);
    return labels;
  };
  EXPECT_EQ(labels_in_order("plain"), "00022222222");
  order_.shuffle = true;
  const std::string shuffled = labels_in_order("shuffled");
  EXPECT_NE(shuffled, "00022222222");
  EXPECT_EQ(labels_in_order("again"), shuffled);
}

TEST_F(ConvertDatasetTest, ASampleThatCannotBeReadFailsItOrIsLeftOut) {
  folder_.write("in/c/3.JPEG", {});
  EXPECT_TRUE(says(thrown_by<DataError>([&] { convert("tfrecord"); }), "c/3.JPEG"));
  EXPECT_TRUE(nothing_is_left());
  order_.skips_bad = true;
  const dataset::ConvertedDataset converted = convert("beton");
  EXPECT_EQ(converted.samples, 10U);
  ASSERT_EQ(converted.left_out.size(), 1U);
  EXPECT_TRUE(says(converted.left_out.front(), "c/3.JPEG"));
  EXPECT_EQ(samples_of(order_.out).size(), 10U);
}

TEST_F(ConvertDatasetTest, LeavesNothingWhereItIsStopped) {
  std::stop_source stop;
  order_.on_progress = [&](std::string_view phase, std::uint64_t done, std::uint64_t) {
    if (phase == "writing" && done == 5) stop.request_stop();
  };
  const auto& format = find_entry(datasets::dataset_writer_table(), "webdataset");
  EXPECT_TRUE(dataset::convert_dataset(order_, format, stop.get_token()).stopped);
  EXPECT_TRUE(nothing_is_left());
}

TEST_F(ConvertDatasetTest, TakesNoFolderThatHoldsSomething) {
  folder_.write("out/precious.txt", {});
  EXPECT_TRUE(says(thrown_by<ConfigError>([&] { convert("webdataset"); }), "already exists"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "out/precious.txt"));
}

TEST_F(ConvertDatasetTest, SaysWhenItHasPaid) {
  dataset::ConvertedDataset converted;
  converted.write_s = 12;
  converted.read_before_s = 5;
  converted.read_after_s = 1;
  EXPECT_EQ(converted.payback_epochs(), 3);
  converted.read_after_s = 5;
  EXPECT_LT(converted.payback_epochs(), 0);
}

TEST_F(ConvertDatasetTest, CheckingFindsEveryBadSampleOfEveryFormat) {
  std::vector<std::byte> cut = encode_jpeg(make_test_image(90, 70));
  cut.resize(cut.size() / 2);
  folder_.write("in/a/9.JPEG", cut);
  folder_.write("in/c/9.JPEG", std::vector<std::byte>(100, std::byte{'x'}));
  for (const datasets::DatasetWriterEntry* format : datasets::dataset_writer_table().entries) {
    // These formats accept only JPEGs.
    if (format->name == "beton" || format->image_size > 0) continue;
    SCOPED_TRACE(format->name);
    order_.out = (folder_ / std::string(format->name)).string();
    convert(std::string(format->name));
    const dataset::CheckedDataset checked = dataset::check_dataset(
        {.directory = order_.out, .source = std::string(format->name), .threads = 2}, {});
    EXPECT_EQ(checked.samples, 13U);
    EXPECT_EQ(checked.bad, 2U);
    ASSERT_EQ(checked.reasons.size(), 2U);
    EXPECT_EQ(checked.labels, (std::vector<std::uint64_t>{3, 0, 8}));
  }
}

TEST_F(ConvertDatasetTest, PixelsAreCheckedAndBecomeNoEncodedImages) {
  const std::vector<std::byte> pixels(3 * 48), labels{std::byte{0}, std::byte{200}, std::byte{2}};
  folder_.write(
      "pixels/images.npy",
      npy_file("{'descr': '|u1', 'fortran_order': False, 'shape': (3, 4, 4, 3)}", pixels));
  folder_.write("pixels/labels.npy",
                npy_file("{'descr': '|i1', 'fortran_order': False, 'shape': (3,)}", labels));
  order_.directory = (folder_ / "pixels").string();
  const dataset::CheckedDataset checked =
      dataset::check_dataset({.directory = order_.directory, .source = "auto", .threads = 2}, {});
  EXPECT_EQ(checked.samples, 3U);
  EXPECT_EQ(checked.bytes, 2U * 48);
  EXPECT_EQ(checked.bad, 1U);
  EXPECT_EQ(checked.labels, (std::vector<std::uint64_t>{1, 0, 1}));
  EXPECT_TRUE(says(thrown_by<ConfigError>([&] { convert("webdataset"); }), "are pixels"));
  EXPECT_TRUE(nothing_is_left());
  order_.skips_bad = true;
  order_.image_size = 6;
  EXPECT_EQ(convert("raw").samples, 2U);
}

TEST_F(ConvertDatasetTest, CheckingStopsWhenAsked) {
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THROW(
      dataset::check_dataset({.directory = order_.directory, .source = "auto"}, stop.get_token()),
      Error);
}

TEST(DetectSource, NamesWhatCannotBeTold) {
  TempFolder folder;
  EXPECT_EQ(datasets::detect_source((folder / "missing").string()), "image-folder");
  folder.write("train-00000-of-00002", {});
  EXPECT_EQ(datasets::detect_source(folder.path().string()), "tfrecord");
  folder.write("x.tar", {});
  EXPECT_TRUE(says(thrown_by<ConfigError>([&] { datasets::detect_source(folder.path().string()); }),
                   "tfrecord, webdataset"));
  EXPECT_EQ(datasets::detect_source((folder / "{x,y}.tar").string()), "webdataset");
}

TEST(DetectSource, FirstBytesDecideWhereNamesDoNot) {
  const auto told = [](const char* name, std::string_view text) {
    TempFolder folder;
    const auto bytes = std::as_bytes(std::span(text));
    folder.write(name, {bytes.begin(), bytes.end()});
    const std::string whole =
        thrown_by<ConfigError>([&] { datasets::detect_source(folder.path().string()); });
    try {
      return whole + " | " + datasets::detect_source((folder / name).string());
    } catch (const ConfigError& error) {
      return whole + " | " + error.what();
    }
  };
  for (const auto& [name, begin, format] :
       {std::array{"train-00000-of-00001.parquet", "PAR1", "Parquet"},
        std::array{"data-00000-of-00001.arrow", "\xff\xff\xff\xff\x01", "Arrow"},
        std::array{"train", "\x80\x04\x95", "pickle"},
        std::array{"images.zip", "PK\x03\x04", "zip"}}) {
    const std::string text = told(name, begin);
    EXPECT_TRUE(says(text, format)) << text;
    EXPECT_TRUE(says(text.substr(text.find(" | ")), "not supported")) << text;
  }
  for (const auto& [begin, source] : {std::pair{"\x89HDF\r\n", "hdf5"}, {"\x93NUMPY", "raw"}}) {
    const std::string text = told("set.bin", begin);
    EXPECT_TRUE(says(text, "set.bin'; check") || says(text, "--data-dir '")) << text;
    EXPECT_TRUE(text.ends_with(std::string(" | ") + source)) << text;
  }
  EXPECT_TRUE(says(told("cifar-100-python/meta", ""), "CIFAR-100"));
}

TEST(DetectSource, TellsFolderNamesFromFileNames) {
  const auto detected = [](const char* name) {
    TempFolder folder;
    folder.write(name, {});
    return datasets::detect_source(folder.path().string());
  };
  EXPECT_EQ(detected("set.ffcv"), "beton");
  EXPECT_EQ(detected("flowers00-230.tfrec"), "tfrecord");
  EXPECT_EQ(detected("shard.00000.mds.zstd"), "mds");
  EXPECT_EQ(detected("lock.mdb"), "image-folder");
  EXPECT_EQ(detected("a.tar/0.JPEG"), "image-folder");
  EXPECT_EQ(detected("cifar-10-batches-bin/data_batch_1.bin"), "cifar10");
}

}  // namespace
}  // namespace penstock
