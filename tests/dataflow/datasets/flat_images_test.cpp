// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/image_folder.h"

#include <gtest/gtest.h>

#include <string>

#include "dataflow/error.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

class FlatImagesTest : public testing::Test {
 protected:
  FlatImagesTest() {
    for (const char* name : {"val/c.JPEG", "val/a.JPEG", "val/b.JPEG", "val/notes.txt"}) {
      folder_.write(name, {std::byte{1}});
    }
    images_.directory = (folder_ / "val").string();
    images_.labels = (folder_ / "labels.txt").string();
    images_.classes = 10;
  }
  /// "a0 c0 b2": names with labels, in the order of the listing.
  std::string list(const std::string& labels) {
    const auto* const data = reinterpret_cast<const std::byte*>(labels.data());
    folder_.write("labels.txt", {data, data + labels.size()});
    const datasets::ImageFiles files = datasets::list_flat_images(images_);
    std::string text;
    for (std::size_t i = 0; i < files.files.size(); ++i) {
      const std::string path = files.files.path(i);
      text += path[path.size() - 6];
      text += std::to_string(files.label(i));
      text += ' ';
    }
    return text + "of " + std::to_string(files.classes());
  }
  std::string refusal(const std::string& labels) {
    return thrown_by<ConfigError>([&] { list(labels); });
  }

  TempFolder folder_;
  datasets::FlatImages images_;
};

TEST_F(FlatImagesTest, TakesLabelsByNameOrByPlace) {
  EXPECT_EQ(list("c.JPEG 0\nb.JPEG 2\n\na.JPEG 0\n"), "a0 c0 b2 of 3");
  EXPECT_EQ(list("2\n0\n5"), "b0 a2 c5 of 6");
  EXPECT_EQ(list("b.JPEG 2\nc.JPEG 3\na.JPEG 1\nnot_there.JPEG 9\n"), "a1 b2 c3 of 4");
}

TEST_F(FlatImagesTest, NumbersMayBeginAtOne) {
  images_.label_base = 1;
  EXPECT_EQ(list("1\n10\n2\n"), "a0 c1 b9 of 10");
  EXPECT_TRUE(says(refusal("0\n1\n2\n"), "line 1"));
  EXPECT_TRUE(says(refusal("1\n1\n11\n"), "line 3"));
}

TEST_F(FlatImagesTest, WordsAreNumberedInByteOrder) {
  EXPECT_EQ(list("n02\nn01\nn02\n"), "b0 a1 c1 of 2");
}

TEST_F(FlatImagesTest, WhatDoesNotFitIsSaid) {
  EXPECT_TRUE(says(refusal("1\n2\n"), "2 labels"));
  EXPECT_TRUE(says(refusal("a.JPEG 1\nb.JPEG 2\n"), "'c.JPEG'"));
  EXPECT_TRUE(says(refusal(""), "empty"));
  EXPECT_TRUE(says(refusal("1\nb.JPEG 2\n3\n"), "line 2"));
  EXPECT_TRUE(says(refusal("1\nx\n3\n"), "line 2"));
  EXPECT_TRUE(says(refusal("a b c\n"), "line 1"));
  EXPECT_TRUE(says(refusal("1\n2\n99999999999999999999\n"), "line 3"));
  images_.labels += ".missing";
  EXPECT_TRUE(
      says(thrown_by<ConfigError>([&] { datasets::list_flat_images(images_); }), "cannot be read"));
}

}  // namespace
}  // namespace penstock
