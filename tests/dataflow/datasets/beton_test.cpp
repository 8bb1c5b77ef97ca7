// SPDX-License-Identifier: Apache-2.0
// .beton files that Python wrote, and damaged ones.
#include "dataflow/datasets/beton.h"

#include "tests/support/packed_set.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

class BetonTest : public PackedSet {
 protected:
  BetonTest() : PackedSet("beton") {}
  void SetUp() override {
    PackedSet::SetUp();
    if (!IsSkipped()) pack("beton", "set.beton");
  }

  std::string file() const { return read_text(path("set.beton")); }
  datasets::BetonLayout layout() const {
    const std::string bytes = file();
    return datasets::parse_beton_layout(std::as_bytes(std::span(bytes)));
  }
  /// Replaces the bytes of the file at `at`.
  void overwrite(std::uint64_t at, const std::string& bytes) {
    std::string changed = good_.empty() ? good_ = file() : good_;
    changed.replace(at, bytes.size(), bytes);
    write_text(path("set.beton"), changed);
  }

  std::string good_;
};

TEST_F(BetonTest, GivesWhatWasPacked) {
  const auto opened = open("beton");
  EXPECT_EQ(opened->facts().classes, 3);
  EXPECT_EQ(images_of(*opened), images_);
  run("beton");
}

TEST(JpegSize, IsThatOfTheFrameHeader) {
  std::vector<std::byte> image = encode_jpeg(make_test_image(300, 45));
  const std::optional<datasets::JpegSize> size = datasets::find_jpeg_size(image);
  ASSERT_TRUE(size);
  EXPECT_EQ(size->width, 300);
  EXPECT_EQ(size->height, 45);
  image.resize(60);  // before the frame header
  EXPECT_FALSE(datasets::find_jpeg_size(image));
  EXPECT_FALSE(datasets::find_jpeg_size({}));
  EXPECT_FALSE(datasets::find_jpeg_size(std::vector<std::byte>(100)));
}

TEST_F(BetonTest, FindsFieldsAmongAnyOthers) {
  for (const char* fields :
       {"int:label,rgb:image", "float:f,rgb:x,int:y,bytes:b", "bytes:b,int:y,json:j,rgb:x,array:a",
        "tensor:t,rgb:x,float:f,int:y"}) {
    pack("beton", "set.beton", std::string("fields=") + fields);
    EXPECT_EQ(images_of(*open("beton")), images_) << fields;
  }
}

TEST_F(BetonTest, AsksWhichFieldWhereThereAreSeveral) {
  pack("beton", "set.beton", "fields=int:index,rgb:photo,int:label,rgb:a_very_long_name");
  expect_refusal("has 2 columns of RGB images; there are 'index' (int), 'photo' (RGB image)");
  expect_refusal("beton:image=NAME");
  // Of several number fields, `label` is used; names have at most 16 characters.
  EXPECT_EQ(images_of(*open("beton:image=photo")), images_);
  EXPECT_EQ(images_of(*open("beton:image=a_very_long_name_indeed")), images_);
  EXPECT_EQ(images_of(*open("beton:image=photo,label=index"))[11].label, 11);
  expect_refusal("has no whole numbers in column 'photo'", "beton:image=photo,label=photo");
  expect_refusal("has no column 'cls'", "beton:image=photo,label=cls");
  pack("beton", "set.beton", "fields=int:a,rgb:photo,int:b");
  expect_refusal("beton:label=NAME");
  pack("beton", "set.beton", "fields=rgb:photo");
  expect_refusal("has no column of whole numbers; there are 'photo' (RGB image)");
}

TEST_F(BetonTest, RawImagesAreRefusedByName) {
  pack("beton", "set.beton", "raw=12");
  expect_refusal("has uncompressed images only (mode raw)");
  pack("beton", "set.beton", "raw=5");
  const std::vector<GivenImage> found = images_of(*open("beton"));
  ASSERT_EQ(found.size(), 12U);
  for (std::size_t i = 0; i < 12; ++i) {
    if (i >= 5) {
      EXPECT_EQ(found[i], images_[i]);
    } else {
      EXPECT_TRUE(says(message_of(found[i]), "is uncompressed (mode raw)"));
    }
  }
}

TEST_F(BetonTest, DamageCostsItsSampleAlone) {
  const datasets::BetonLayout layout = this->layout();
  const std::uint64_t row = layout.rows_at + 4 * layout.row_bytes;
  // The six samples with odd numbers were written before those with even numbers.
  const std::uint64_t allocation = layout.allocations_at + (6 + 2) * 24;
  ASSERT_EQ(layout.row_bytes, 24U);
  const struct {
    std::uint64_t at;
    std::string bytes, problem;
  } damages[] = {
      {row, "\x07", "its image has mode 7"},
      {row + 12, "\x7f", "where the file has no data"},
      {row + 5, "\x03", "where the file has no data"},
      {row + 23, "\xff", "which is not the number of a class"},
      {row + 20, "\x01", "its label is 4294967297, which is not the number of a class"},
      {allocation + 23, "\x7f", "where the file has no data"},
      {allocation + 20, "\x01", "where the file has no data"},
      {allocation + 8, std::string(8, '\0'), "where the file has no data"},
  };
  for (const auto& damage : damages) {
    overwrite(damage.at, damage.bytes);
    const std::vector<GivenImage> found = images_of(*open("beton"));
    ASSERT_EQ(found.size(), 12U);
    for (std::size_t i = 0; i < 12; ++i) {
      EXPECT_TRUE(i == 4 || found[i] == images_[i]) << damage.problem;
    }
    const std::string said = message_of(found[4]);
    EXPECT_TRUE(says(said, "set.beton' at byte " + std::to_string(row)));
    EXPECT_TRUE(says(said, damage.problem));
  }
}

TEST_F(BetonTest, FilesThatCannotBeReadAreRefused) {
  overwrite(0, "\x03");
  expect_refusal("set.beton' has version 3; only version 2 is supported");
  overwrite(2, "\xff\xff");
  expect_refusal("ends within the descriptions of its 65535 fields");
  overwrite(14, "\x01");
  expect_refusal("has no room for the rows");
  overwrite(8, std::string(8, '\xff'));
  expect_refusal("has no room for the rows");
  overwrite(8, "\x01");
  expect_refusal("more allocations than 1 samples");
  overwrite(16, std::string(8, '\0'));
  expect_refusal("is incomplete: its writer did not write");
  overwrite(16, std::string(8, '\xff'));
  expect_refusal("do not end with the table of allocations");
  overwrite(24, "\xff");
  expect_refusal("has field 'image' of type 255, which is unsupported");
  write_text(path("set.beton"), good_.substr(0, good_.size() - 1));
  expect_refusal("do not end with the table of allocations");
  write_text(path("set.beton"), good_.substr(0, 20));
  expect_refusal("has 20 bytes, fewer than a head");
  write_text(path("set.beton"), "");
  expect_refusal("has 0 bytes, fewer than a head");
}

}  // namespace
}  // namespace penstock
