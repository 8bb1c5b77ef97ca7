// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/flat_images.h"

#include <gtest/gtest.h>

#include "dataflow/error.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"
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
    write_text(folder_ / "labels.txt", labels);
    const datasets::ImageFiles files = datasets::list_flat_images(images_);
    std::string text;
    note_ = files.note;
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
  std::string note_;
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

TEST_F(FlatImagesTest, WordsAreNumberedInByteOrderAndSaidToBe) {
  EXPECT_EQ(list("n02\nn01\nn02\n"), "b0 a1 c1 of 2");
  EXPECT_TRUE(says(note_, "the 2 words")) << note_;
  EXPECT_EQ(list("2\n0\n5"), "b0 a2 c5 of 6");
  EXPECT_EQ(note_, "");
}

TEST_F(FlatImagesTest, WordsHaveTheNumbersOfTheTrainingFolders) {
  for (const char* name : {"train/n00/0.JPEG", "train/n01/0.JPEG", "train/n02/0.JPEG"}) {
    folder_.write(name, {std::byte{1}});
  }
  EXPECT_EQ(list("n02\nn01\nn02\n"), "b1 a2 c2 of 3");
  EXPECT_TRUE(says(note_, "class folders of '" + (folder_ / "train").string() + "'")) << note_;
  images_.directory += '/';
  EXPECT_EQ(list("a.JPEG n01\nb.JPEG n01\nc.JPEG n01\n"), "a1 b1 c1 of 2");
  EXPECT_TRUE(says(refusal("n02\nn01\nn03\n"), "'n03', which is no class folder"));
  EXPECT_EQ(list("dog\ncat\ndog\n"), "b0 a1 c1 of 2") << "words of another kind";
  images_.class_folders = (folder_ / "train").string();
  EXPECT_TRUE(says(refusal("dog\ncat\ndog\n"), "'dog', which is no class folder"));
  images_.class_folders = (folder_ / "missing").string();
  EXPECT_TRUE(says(refusal("n02\nn01\nn02\n"), "does not exist"));
}

TEST_F(FlatImagesTest, ReadsTablesOfOtherTools) {
  const std::string mark = "\xef\xbb\xbf";
  for (const std::string& text :
       {std::string("a.JPEG,0\nb.JPEG,2\nc.JPEG,3\n"),
        std::string("a.JPEG;0\r\nb.JPEG;2\r\nc.JPEG;3\r\n"),
        std::string("a.JPEG\t0\nb.JPEG\t2\nc.JPEG\t3"),
        std::string("\"a.JPEG\", \"0\"\n'b.JPEG',2\nc.JPEG, 3"), std::string("a 0\nb 2\nc 3\n"),
        std::string("val/a.JPEG 0\nval/b.JPEG 2\n/x/y/c.JPEG 3\n"),
        mark + "a.JPEG 0\nb.JPEG 2\nc.JPEG 3", mark + "0\n2\n3\n"}) {
    EXPECT_EQ(list(text), "a0 b2 c3 of 4") << text;
    EXPECT_EQ(note_, "") << text;
  }
}

TEST_F(FlatImagesTest, AHeaderIsLeftOutAndNamed) {
  for (const char* text : {"ImageId,Class\na,0\nb,2\nc,3\n",
                           "image label\na.JPEG 0\nb.JPEG 2\nc.JPEG 3\n", "Class\n0\n2\n3\n"}) {
    EXPECT_EQ(list(text), "a0 b2 c3 of 4") << text;
    EXPECT_TRUE(says(note_, "line 1")) << note_;
    EXPECT_TRUE(says(note_, "header")) << note_;
  }
  EXPECT_EQ(list("ImageId,Class\na,n00\nb,n02\nc,n00\n"), "a0 c0 b1 of 2");
  EXPECT_EQ(list("z.JPEG n01\na.JPEG n02\nb.JPEG n03\nc.JPEG n03\n"), "a1 b2 c2 of 3")
      << "an image that is not there is no header";
}

TEST_F(FlatImagesTest, AMismatchIsReported) {
  EXPECT_TRUE(says(refusal("1\n2\n"), "2 labels"));
  EXPECT_TRUE(says(refusal("a.JPEG 1\nb.JPEG 2\n"), "'c.JPEG'"));
  EXPECT_TRUE(says(refusal(""), "empty"));
  EXPECT_TRUE(says(refusal("1\nb.JPEG 2\n3\n"), "line 2"));
  EXPECT_TRUE(says(refusal("1\nx\n3\n"), "line 2"));
  EXPECT_TRUE(says(refusal("a b c\n"), "line 1"));
  EXPECT_TRUE(says(refusal("1\n2\n99999999999999999999\n"), "line 3"));
  EXPECT_TRUE(says(refusal("1.0\n2.0\n3.0\n"), "expected a whole number"));
  EXPECT_TRUE(says(refusal("a.JPEG,1,2\n"), "line 1"));
  EXPECT_TRUE(says(refusal("a.JPEG,1\nb.JPEG,\n"), "line 2"));
  EXPECT_TRUE(says(refusal("\xff\xfe 1\n2\n3\n"), "UTF-16"));
  EXPECT_TRUE(says(refusal("a.JPEG 1\na.JPEG 2\nb.JPEG 1\nc.JPEG 1\n"), "line 2"));
  EXPECT_TRUE(says(refusal("a.jpg 1\nb.jpg 2\nc.jpg 3\n"), "its first line names 'a.jpg'"));
  EXPECT_TRUE(says(refusal("cat\nn01\nn02\nn03\n"), "the first of which is 'cat'"));
  images_.labels += ".missing";
  EXPECT_TRUE(
      says(thrown_by<ConfigError>([&] { datasets::list_flat_images(images_); }), "cannot be read"));
}

}  // namespace
}  // namespace penstock
