// SPDX-License-Identifier: Apache-2.0
// Inspecting data sets whose images are not separate files.
#include "bench/dataset/inspect_dataset.h"

#include <gtest/gtest.h>
#include <png.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/dataset/contact_sheet.h"
#include "bench/dataset/convert_dataset.h"
#include "dataflow/error.h"
#include "tests/support/jpeg_writer.h"
#include "tests/support/npy_file.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using Colour = std::array<std::uint8_t, 3>;

class InspectSamplesTest : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  /// Two classes of 3 and 5 JPEGs of different sizes, in class folders.
  void write_images() {
    for (int i = 0; i < 8; ++i) {
      const auto name = std::string(i < 3 ? "in/a/" : "in/b/") + std::to_string(i) + ".JPEG";
      folder_.write(name, encode_jpeg(make_test_image(20 + 7 * i, 40 - i, 3, 1)));
    }
  }
  void convert(const datasets::DatasetWriterEntry& format) {
    dataset::ConvertDataset order;
    order.directory = path("in");
    order.source = "auto";
    order.out = path(std::string(format.name));
    order.threads = 2;
    dataset::convert_dataset(order, format, {});
  }
  /// One image of 4 x 4 in [N,H,W,C] per colour, with the given labels.
  void write_pixels(const std::vector<Colour>& colours, const std::vector<int>& labels) {
    std::vector<std::byte> pixels, numbers;
    for (const Colour& colour : colours) {
      for (std::size_t i = 0; i < 48; ++i) pixels.push_back(std::byte{colour[i % 3]});
    }
    for (const int label : labels) numbers.push_back(static_cast<std::byte>(label));
    const std::string count = std::to_string(colours.size());
    const std::string shape = ", 'fortran_order': False, 'shape': (" + count;
    folder_.write("pixels/images.npy", npy_file("{'descr': '|u1'" + shape + ", 4, 4, 3)}", pixels));
    folder_.write("pixels/labels.npy", npy_file("{'descr': '|i1'" + shape + ",)}", numbers));
  }

  TempFolder folder_;
};

/// A PNG in memory.
struct Sheet {
  explicit Sheet(const std::string& path) {
    image.version = PNG_IMAGE_VERSION;
    if (png_image_begin_read_from_file(&image, path.c_str()) == 0) return;
    image.format = PNG_FORMAT_RGB;
    bytes.resize(PNG_IMAGE_SIZE(image));
    png_image_finish_read(&image, nullptr, bytes.data(), 0, nullptr);
  }
  /// The colour in the middle of a picture.
  Colour at(std::size_t row, std::size_t column) const {
    const std::size_t left = 4 + 164 * column + 80, top = 22 + (22 + 120 + 4) * row + 60;
    const std::uint8_t* const pixel = bytes.data() + 3 * (top * image.width + left);
    return {pixel[0], pixel[1], pixel[2]};
  }
  png_image image{};
  std::vector<std::uint8_t> bytes;
};

TEST_F(InspectSamplesTest, EveryFormatOfEncodedImagesIsCountedAsItsFolderIs) {
  write_images();
  dataset::DatasetInventory folder = dataset::inspect_dataset({.directory = path("in")}, {});
  std::ranges::sort(folder.file_bytes);
  ASSERT_EQ(folder.images(), 8);
  for (const datasets::DatasetWriterEntry* format : datasets::dataset_writer_table().entries) {
    if (format->image_size > 0 || format->name == "image-folder") continue;
    SCOPED_TRACE(format->name);
    convert(*format);
    dataset::DatasetInventory packed =
        dataset::inspect_dataset({.directory = path(std::string(format->name))}, {});
    EXPECT_EQ(packed.format, format->name);
    std::ranges::sort(packed.file_bytes);
    EXPECT_EQ(packed.file_bytes, folder.file_bytes);
    EXPECT_EQ(packed.sizes, folder.sizes);
    EXPECT_EQ(packed.subsamplings, folder.subsamplings);
    EXPECT_EQ(packed.colour_spaces, folder.colour_spaces);
    EXPECT_EQ(packed.portrait, folder.portrait);
    ASSERT_EQ(packed.classes.size(), 2U);
    EXPECT_EQ(packed.classes[0].images(), 3U);
    EXPECT_EQ(packed.classes[1].images(), 5U);
    EXPECT_EQ(packed.classes[1].bytes, folder.classes[1].bytes);
    EXPECT_TRUE(packed.odd.empty());
    EXPECT_TRUE(says(dataset::to_text(packed), std::string(format->name)));
    EXPECT_EQ(dataset::to_json(packed)["source"], format->name);

    const std::string sheet = path("sheet.png");
    dataset::write_contact_sheet(packed, sheet, {});
    EXPECT_TRUE(packed.odd.empty());
    dataset::write_contact_sheet(folder, path("folder.png"), {});
    const Sheet shown(sheet), files(path("folder.png"));
    ASSERT_FALSE(shown.bytes.empty());
    EXPECT_EQ(shown.image.height, files.image.height);
    for (std::size_t row = 0; row < 2; ++row) {
      for (std::size_t c = 0; c < 3; ++c) {
        EXPECT_NEAR(shown.at(row, 0)[c], files.at(row, 0)[c], 8) << row << ", " << c;
      }
    }
  }
}

TEST_F(InspectSamplesTest, EveryFormatOfPixelsIsCountedAndShown) {
  write_images();
  for (const datasets::DatasetWriterEntry* format : datasets::dataset_writer_table().entries) {
    if (format->image_size == 0) continue;
    SCOPED_TRACE(format->name);
    convert(*format);
    dataset::DatasetInventory inventory =
        dataset::inspect_dataset({.directory = path(std::string(format->name))}, {});
    EXPECT_EQ(inventory.images(), 8);
    EXPECT_EQ(inventory.sizes.size(), 1U);
    ASSERT_EQ(inventory.classes.size(), 2U);
    EXPECT_EQ(inventory.classes[1].images(), 5U);
    dataset::write_contact_sheet(inventory, path("sheet.png"), {});
    EXPECT_TRUE(inventory.odd.empty());
  }
}

TEST_F(InspectSamplesTest, PixelsAreShownAsTheyLie) {
  write_pixels({{250, 0, 0}, {0, 0, 240}, {230, 0, 0}, {0, 9, 0}}, {3, 7, 3, -56});
  dataset::DatasetInventory inventory = dataset::inspect_dataset({.directory = path("pixels")}, {});
  EXPECT_EQ(inventory.format, "raw");
  EXPECT_EQ(inventory.images(), 3);
  EXPECT_EQ(inventory.sizes, (std::map<std::string, std::int64_t>{{"4x4", 3}}));
  EXPECT_EQ(inventory.colour_spaces, (std::map<std::string, std::int64_t>{{"RGB pixels", 3}}));
  EXPECT_TRUE(inventory.subsamplings.empty());
  EXPECT_FALSE(says(dataset::to_text(inventory), "subsampling"));
  ASSERT_EQ(inventory.classes.size(), 2U);
  EXPECT_EQ(inventory.classes[0].name, "label 3");
  EXPECT_EQ(inventory.classes[1].label, 7);
  ASSERT_EQ(inventory.odd.size(), 1U);
  EXPECT_EQ(inventory.odd[0].path, "sample 3");
  EXPECT_TRUE(says(inventory.odd[0].reason, "images.npy"));

  dataset::write_contact_sheet(inventory, path("sheet.png"), {});
  const Sheet sheet(path("sheet.png"));
  EXPECT_EQ(sheet.at(0, 0), (Colour{250, 0, 0}));
  EXPECT_EQ(sheet.at(0, 1), (Colour{230, 0, 0}));
  EXPECT_EQ(sheet.at(1, 0), (Colour{0, 0, 240}));

  inventory =
      dataset::inspect_dataset({.directory = path("pixels"), .source = "raw:channels=bgr"}, {});
  EXPECT_EQ(inventory.colour_spaces, (std::map<std::string, std::int64_t>{{"BGR pixels", 3}}));
  dataset::write_contact_sheet(inventory, path("sheet.png"), {});
  EXPECT_EQ(Sheet(path("sheet.png")).at(0, 0), (Colour{0, 0, 250})) << "channels are as they lie";
}

TEST_F(InspectSamplesTest, DamageIsNamedAndCostsItsSampleAlone) {
  write_images();
  std::vector<std::byte> cut = encode_jpeg(make_test_image(90, 70));
  cut.resize(cut.size() / 4);  // the header and part of its pixels
  folder_.write("in/a/cut.JPEG", cut);
  folder_.write("in/b/rubbish.JPEG", std::vector<std::byte>(100, std::byte{'x'}));
  convert(find_entry(datasets::dataset_writer_table(), "tfrecord"));
  dataset::DatasetInventory inventory =
      dataset::inspect_dataset({.directory = path("tfrecord")}, {});
  EXPECT_EQ(inventory.images(), 9);
  ASSERT_EQ(inventory.odd.size(), 2U);
  EXPECT_TRUE(says(inventory.odd[0].reason, "end marker"));
  EXPECT_TRUE(says(inventory.odd[1].reason, " at byte "));
  dataset::write_contact_sheet(inventory, path("sheet.png"), {});
  EXPECT_EQ(inventory.odd.size(), 3U) << "what cannot be shown is odd";
  EXPECT_TRUE(says(dataset::to_text(inventory), "sample "));
}

TEST_F(InspectSamplesTest, SetsWithoutAnImageAreRefused) {
  folder_.write("in/a/rubbish.JPEG", std::vector<std::byte>(100, std::byte{'x'}));
  convert(find_entry(datasets::dataset_writer_table(), "webdataset"));
  const std::string said = thrown_by<ConfigError>(
      [&] { dataset::inspect_dataset({.directory = path("webdataset")}, {}); });
  EXPECT_TRUE(says(said, "no image that can be read"));
  EXPECT_TRUE(says(said, ".tar"));
  EXPECT_THROW(
      dataset::inspect_dataset({.directory = path("webdataset"), .source = "tfrecrod"}, {}),
      ConfigError);
}

}  // namespace
}  // namespace penstock
