// SPDX-License-Identifier: Apache-2.0
// WebDataset shards: written by Python's tarfile, and damaged.
#include "dataflow/error.h"
#include "tests/support/packed_images.h"
#include "tests/support/tar_writer.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

const std::string kEnd(1024, '\0');

class WebDatasetSourceTest : public PackedImagesTest {
 protected:
  static constexpr const char* kShard = "train-000000.tar";
  void write(const std::string& archive) const { write_text(folder_ / "packed" / kShard, archive); }
  /// "label:image " for each sample, "!" for a damaged one; error messages go to `errors`.
  std::string told(const std::string& archive, std::vector<std::string>& errors,
                   const std::string& source = "webdataset") const {
    write(archive);
    std::string text;
    for (const GivenSample& given : all_of(*open(source))) {
      if (given.label < 0) errors.push_back(given.content);
      text += given.label < 0 ? "! " : std::to_string(given.label) + ":" + given.content + " ";
    }
    return text;
  }
  std::string refused(const std::string& archive) const {
    write(archive);
    return refusal("webdataset");
  }
};

std::string sample(const std::string& key, const std::string& image, const std::string& label) {
  return tar_file(key + ".jpg", image) + tar_file(key + ".cls", label);
}

TEST_F(WebDatasetSourceTest, GivesTheBytesThatPythonWrote) {
  const std::string long_prefix = std::string(60, 'a') + "/" + std::string(60, 'b') + "/";
  for (const char* format : {"ustar", "pax", "gnu"}) {
    pack(std::string("webdataset shards=3 format=") + format + " prefix=" + long_prefix);
    const auto source = open("webdataset");
    EXPECT_EQ(source->facts().size, samples_.size());
    EXPECT_EQ(source->facts().classes, 3);
    EXPECT_EQ(read(*source), samples_) << format;
  }
  for (const char* format : {"pax", "gnu"}) {
    pack(std::string("webdataset format=") + format + " prefix=é." + std::string(300, 'c') + "/");
    EXPECT_EQ(read(*open("webdataset")), samples_) << format;
  }
}

TEST_F(WebDatasetSourceTest, KindsOfFileAreOptions) {
  pack("webdataset label=json extension=JPEG");
  EXPECT_EQ(read(*open("webdataset:label=json")), samples_);
  EXPECT_TRUE(says(refusal("webdataset:label=json,json_key=class"), "no whole number 'class'"));
  EXPECT_TRUE(
      says(refusal("webdataset"), "no label, a file .cls; its files are jpeg, json, seg.jpg"));
  std::vector<GivenImage> all_of_class_0 = samples_;
  for (GivenImage& sample : all_of_class_0) sample.label = 0;
  EXPECT_EQ(read(*open("webdataset:label=none")), all_of_class_0);
  EXPECT_TRUE(says(refusal("webdataset:images=json,label=json"), "both in images"));
  EXPECT_TRUE(says(refusal("webdataset:images=;"), "'images'"));
  plan_.classes = 2;
  EXPECT_TRUE(says(refusal("webdataset:label=json"), "--classes 3"));
}

TEST_F(WebDatasetSourceTest, TheFirstKindThatIsThereIsTheImage) {
  std::vector<std::string> errors;
  const std::string archive = tar_file("a.png", "PNG") + tar_file("a.jpg", "JPG") +
                              tar_file("a.cls", "1") + tar_file("b.png", "png") +
                              tar_file("b.cls", " 2\n") + kEnd;
  EXPECT_EQ(told(archive, errors), "1:JPG 2:png ");
  EXPECT_EQ(told(archive, errors, "webdataset:images=png"), "1:PNG 2:png ");
  EXPECT_TRUE(errors.empty());
}

TEST_F(WebDatasetSourceTest, ADamagedSampleCostsItselfAlone) {
  const std::string a = sample("a", "A", "0"), z = sample("z", "Z", "2");
  const struct {
    std::string archive, problem;
  } cases[] = {
      {tar_file("b.jpg", "B") + tar_file("b.txt", "t"),
       "no label, a file .cls; its files are jpg, txt"},
      {tar_file("b.cls", "1"), "no image; its files are cls"},
      {sample("b", "B", "one"), "label is 'one'"},
      {sample("b", "B", "-1"), "label is '-1'"},
      {sample("b", "B", ""), "label is ''"},
      {sample("b", "B", "99999999999"), "label is '99999999999'"},
      {sample("b", "", "1"), "image is empty"},
      {tar_file("b.jpg", "B") + sample("b", "C", "1"), "two files of the kind jpg"},
      {sample("b", "B", "1") + tar_file("b.cls", "1"), "two files of the kind cls"},
      {sample("b", "B", std::string(2'000'000, '1')), "more than a mebibyte"},
  };
  for (const auto& [archive, problem] : cases) {
    std::vector<std::string> errors;
    EXPECT_EQ(told(a + archive + z + kEnd, errors), "0:A ! 2:Z ");
    ASSERT_EQ(errors.size(), 1U);
    EXPECT_TRUE(says(errors[0], problem));
    EXPECT_TRUE(says(errors[0], "train-000000.tar' at byte 2048: it"));
    // Before other samples it is one damaged sample; alone, the error says that options do not fit.
    errors.clear();
    EXPECT_EQ(told(archive + z + kEnd, errors), "! 2:Z ");
    EXPECT_TRUE(says(refused(archive + kEnd), problem));
  }
}

TEST_F(WebDatasetSourceTest, DamageOfTheTarCostsTheRestOfItsShard) {
  const std::string a = sample("a", "A", "0"), b = sample("b", "B", "1");
  std::string broken = a + b + sample("c", "C", "2") + kEnd;
  for (const auto& [header, found] :
       {std::pair{1, "! "}, {2, "0:A ! "}, {3, "0:A ! "}, {4, "0:A 1:B ! "}}) {
    std::string archive = broken;
    archive[static_cast<std::size_t>(header) * 1024 + 3] = 'x';
    std::vector<std::string> errors;
    if (header == 1) {
      EXPECT_TRUE(says(refused(archive), "does not begin with a sample"));
      continue;
    }
    EXPECT_EQ(told(archive, errors), found) << header;
    ASSERT_EQ(errors.size(), 1U);
    EXPECT_TRUE(says(errors[0], "checksum"));
  }
  for (const std::size_t size :
       {a.size() + 100, a.size() + 512, a.size() + 1100, a.size() + 1536}) {
    std::vector<std::string> errors;
    EXPECT_EQ(told((a + b).substr(0, size), errors), "0:A ! ") << size;
    ASSERT_EQ(errors.size(), 1U);
    EXPECT_TRUE(says(errors[0], "cut off"));
    EXPECT_TRUE(says(errors[0], "at byte 2048"));
  }
}

TEST_F(WebDatasetSourceTest, OtherFilesAreRefused) {
  EXPECT_TRUE(says(refused(std::string(600, 'x')), "does not begin with a sample"));
  EXPECT_TRUE(says(refused("text"), "cut off in a header"));
  EXPECT_TRUE(says(refused(tar_file("a.txt", "1") + kEnd), "neither an image nor a label"));
  EXPECT_TRUE(says(refused(kEnd), "hold no sample"));
  EXPECT_TRUE(says(refused(""), "hold no sample"));
}

}  // namespace
}  // namespace penstock
