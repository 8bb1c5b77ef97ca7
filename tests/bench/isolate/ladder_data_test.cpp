// SPDX-License-Identifier: Apache-2.0
// What a ladder finds out about folders, packed sets and pixels.
#include "bench/isolate/ladder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "dataflow/error.h"
#include "tests/support/npy_file.h"
#include "tests/support/tar_writer.h"
#include "tests/support/temp_folder.h"

namespace penstock {
namespace {

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
