// SPDX-License-Identifier: Apache-2.0
#include "bench/dataset/inspect_dataset.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

// libjpeg's header needs <cstdio> before it.
#include <cstdio>
#include <cstdlib>

#include <jpeglib.h>
#include <nlohmann/json.hpp>

#include "bench/dataset/contact_sheet.h"
#include "bench/dataset/make_dataset.h"
#include "dataflow/error.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

/// A JPEG of 40 x 30 with a colour space and subsampling that encode_jpeg does not write.
std::string encode(J_COLOR_SPACE space, int components, bool progressive, int luma_factor) {
  jpeg_compress_struct codec{};
  jpeg_error_mgr error{};
  codec.err = jpeg_std_error(&error);
  jpeg_create_compress(&codec);
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&codec, &buffer, &size);
  codec.image_width = 40;
  codec.image_height = 30;
  codec.input_components = components;
  codec.in_color_space = space;
  jpeg_set_defaults(&codec);
  codec.comp_info[0].h_samp_factor = luma_factor;
  codec.comp_info[0].v_samp_factor = luma_factor;
  if (progressive) jpeg_simple_progression(&codec);
  jpeg_start_compress(&codec, TRUE);
  std::vector<JSAMPLE> pixels(40U * static_cast<std::size_t>(components), 128);
  JSAMPROW line = pixels.data();
  while (codec.next_scanline < codec.image_height) jpeg_write_scanlines(&codec, &line, 1);
  jpeg_finish_compress(&codec);
  jpeg_destroy_compress(&codec);
  std::string bytes(reinterpret_cast<char*>(buffer), size);
  std::free(buffer);
  return bytes;
}

std::string plain() { return encode(JCS_RGB, 3, false, 2); }

dataset::DatasetInventory inspect(const fs::path& folder) {
  return dataset::inspect_dataset({.directory = folder.string()}, {});
}

/// The reason why the file with this path ending is odd; empty: it is not.
std::string reason_of(const dataset::DatasetInventory& inventory, const std::string& ending) {
  for (const dataset::OddFile& odd : inventory.odd) {
    if (odd.path.ends_with(ending)) return odd.reason;
  }
  return {};
}

TEST(InspectDataset, CountsWhatWasMade) {
  const TempFolder folder;
  const dataset::MadeDataset made =
      dataset::make_dataset({.directory = folder.path().string(),
                             .parameters = {.images = 7, .val_images = 1, .classes = 3}},
                            {});
  const dataset::DatasetInventory train = inspect(folder / "train");
  EXPECT_EQ(train.images(), 7);
  ASSERT_EQ(train.classes.size(), 3U);
  EXPECT_EQ(train.classes[0].name, "n00_balls");
  EXPECT_EQ(train.classes[0].files.size(), 3U);
  EXPECT_EQ(train.classes[2].files.size(), 2U);
  EXPECT_TRUE(train.odd.empty());
  EXPECT_EQ(train.subsamplings, (std::map<std::string, std::int64_t>{{"4:2:0", 7}}));
  EXPECT_EQ(train.colour_spaces, (std::map<std::string, std::int64_t>{{"YCbCr", 7}}));
  EXPECT_EQ(train.progressive, 0);
  const dataset::DatasetInventory val = inspect(folder / "val");
  EXPECT_EQ(train.classes[0].bytes + train.classes[1].bytes + train.classes[2].bytes +
                val.classes[0].bytes,
            made.bytes);
  const auto json = dataset::to_json(train);
  EXPECT_EQ(json["images"], 7);
  EXPECT_LE(json["file_bytes"]["min"], json["file_bytes"]["median"]);
  EXPECT_LE(json["file_bytes"]["median"], json["file_bytes"]["max"]);
  EXPECT_TRUE(says(dataset::to_text(train), "n02_checkers"));
}

TEST(InspectDataset, TellsColourSpacesSubsamplingsAndProgressiveFiles) {
  const TempFolder folder;
  write_text(folder / "a/gray.jpg", encode(JCS_GRAYSCALE, 1, false, 1));
  write_text(folder / "a/inks.jpg", encode(JCS_CMYK, 4, false, 1));
  write_text(folder / "a/full.jpeg", encode(JCS_RGB, 3, false, 1));
  write_text(folder / "a/progressive.JPG", encode(JCS_RGB, 3, true, 2));
  const dataset::DatasetInventory inventory = inspect(folder.path());
  EXPECT_EQ(inventory.images(), 4);
  EXPECT_EQ(inventory.progressive, 1);
  EXPECT_EQ(inventory.colour_spaces,
            (std::map<std::string, std::int64_t>{{"CMYK", 1}, {"YCbCr", 2}, {"grayscale", 1}}));
  EXPECT_EQ(inventory.subsamplings.at("4:4:4"), 1);
  EXPECT_EQ(inventory.subsamplings.at("4:2:0"), 1);
  EXPECT_EQ(inventory.sizes.at("40x30"), 4);
  EXPECT_TRUE(inventory.odd.empty());
}

TEST(InspectDataset, NamesRubbish) {
  const TempFolder folder;
  const std::string image = plain();
  write_text(folder / "a/good.jpg", image);
  write_text(folder / "a/empty.jpg", "");
  write_text(folder / "a/png.JPEG", "\x89PNG\r\n\x1a\n and so on");
  write_text(folder / "a/header_cut.jpg", image.substr(0, 100));
  write_text(folder / "a/cut.jpg", image.substr(0, image.size() - 20));
  write_text(folder / "a/other.png", image);
  write_text(folder / "a/deeper/more.jpg", image);
  write_text(folder / "beside.jpg", image);
  write_text(folder / ".hidden/x.jpg", "not looked at");
  fs::create_symlink("nowhere", folder / "a/dangling.jpg");
  ASSERT_EQ(mkfifo((folder / "a/pipe.jpg").c_str(), 0600), 0);  // reading it would block forever
  const dataset::DatasetInventory inventory = inspect(folder.path());
  EXPECT_EQ(inventory.images(), 3);
  EXPECT_EQ(inventory.odd.size(), 9U);
  EXPECT_EQ(reason_of(inventory, "good.jpg"), "");
  for (const char* name : {"empty.jpg", "png.JPEG", "header_cut.jpg"}) {
    const std::string reason = reason_of(inventory, name);
    EXPECT_TRUE(says(reason, name));
  }
  EXPECT_TRUE(says(reason_of(inventory, "a/cut.jpg"), "end marker"));
  EXPECT_NE(reason_of(inventory, "other.png"), "");
  EXPECT_EQ(reason_of(inventory, "deeper"), "not a file");
  EXPECT_EQ(reason_of(inventory, "dangling.jpg"), "not a file");
  EXPECT_EQ(reason_of(inventory, "pipe.jpg"), "not a file");
  EXPECT_NE(reason_of(inventory, "beside.jpg"), "");
  EXPECT_TRUE(says(dataset::to_text(inventory), "png.JPEG"));
  EXPECT_EQ(dataset::to_json(inventory)["odd_files"].size(), 9U);
}

TEST(InspectDataset, SurvivesEveryDamagedByte) {
  const TempFolder folder;
  const std::string image = plain();
  ASSERT_LT(image.size(), 2000U);
  for (std::size_t i = 0; i < image.size(); i += 3) {
    std::string damaged = image;
    damaged[i] = static_cast<char>(~damaged[i]);
    write_text(folder / ("a/" + std::to_string(i) + ".jpg"), damaged);
  }
  write_text(folder / "b/good.jpg", image);
  dataset::DatasetInventory inventory = inspect(folder.path());
  EXPECT_GT(inventory.images(), 1);
  EXPECT_GT(inventory.odd.size(), 0U);
  // Whatever the header promises, decoding ends with a picture or a DataError that names the file.
  int decoded = 0;
  for (const std::string& file : inventory.classes[0].files) {
    try {
      decoded += dataset::read_jpeg_reduced(file, 160, 120).width > 0 ? 1 : 0;
    } catch (const DataError& error) {
      EXPECT_TRUE(says(std::string(error.what()), file)) << error.what();
    }
  }
  EXPECT_GT(decoded, 0);
}

TEST(InspectDataset, RefusesFoldersWithoutImages) {
  const TempFolder folder;
  fs::create_directories(folder / "train/cats");
  const auto refusal = [](const fs::path& path) {
    return thrown_by<ConfigError>([&] { inspect(path); });
  };
  const std::string missing = refusal(folder / "missing");
  EXPECT_TRUE(says(missing, (folder / "missing").string()));
  EXPECT_TRUE(says(missing, "penstock dataset make"));
  EXPECT_TRUE(says(refusal(folder.path()), (folder / "train").string()));
  EXPECT_FALSE(says(refusal(folder / "train"), "nothing was thrown"));
}

TEST(JpegFile, ErrorsNameTheFile) {
  const TempFolder folder;
  write_text(folder / "rubbish.jpg", "rubbish");
  for (const char* name : {"rubbish.jpg", "missing.jpg"}) {
    const std::string path = (folder / name).string();
    EXPECT_TRUE(
        says(thrown_by<DataError>([&] { dataset::read_jpeg_reduced(path, 10, 10); }), path));
    EXPECT_TRUE(says(thrown_by<DataError>([&] { dataset::read_jpeg_header(path); }), path));
  }
}

TEST(JpegFile, RefusesToDecodeImmenseImages) {
  const TempFolder folder;
  std::string image = plain();
  const std::size_t frame = image.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  image.replace(frame + 5, 4, "\xff\x00\xff\x00", 4);  // 65,280 x 65,280 pixels in a kilobyte
  write_text(folder / "immense.jpg", image);
  EXPECT_EQ(dataset::read_jpeg_header((folder / "immense.jpg").string()).width, 65280);
  EXPECT_THROW(dataset::read_jpeg_reduced((folder / "immense.jpg").string(), 10, 10), DataError);
}

TEST(ContactSheet, ShowsARowForEachClassAndNamesWhatItCannotShow) {
  const TempFolder folder;
  write_text(folder / "a/good.jpg", plain());
  write_text(folder / "a/gray.jpg", encode(JCS_GRAYSCALE, 1, false, 1));
  write_text(folder / "a/inks.jpg", encode(JCS_CMYK, 4, true, 1));
  std::string bad = plain();
  bad.replace(bad.find("\xff\xda"), 2, "\xff\xd9");  // ends before its only scan
  write_text(folder / "b/bad.jpg", bad);
  dataset::DatasetInventory inventory = inspect(folder.path());
  const fs::path sheet = folder / "sheet.png";
  dataset::write_contact_sheet(inventory, sheet.string(), {});
  const std::string png = read_text(sheet);
  ASSERT_GT(png.size(), 24U);
  EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
  EXPECT_EQ(png.substr(png.size() - 8, 4), "IEND");
  const auto big_endian = [&](std::size_t at) {
    return static_cast<unsigned char>(png[at + 2]) * 256 + static_cast<unsigned char>(png[at + 3]);
  };
  EXPECT_GT(big_endian(16), 8 * 160);
  EXPECT_GT(big_endian(20), 2 * 120);
  EXPECT_NE(reason_of(inventory, "bad.jpg"), "");
}

TEST(ContactSheet, SaysWhereItCannotBeWritten) {
  const TempFolder folder;
  write_text(folder / "a/good.jpg", plain());
  dataset::DatasetInventory inventory = inspect(folder.path());
  for (const std::string path : {"/dev/full", "/nowhere/sheet.png"}) {
    EXPECT_TRUE(says(
        thrown_by<DataError>([&] { dataset::write_contact_sheet(inventory, path, {}); }), path));
  }
  EXPECT_TRUE(fs::exists("/dev/full"));
}

}  // namespace
}  // namespace penstock
