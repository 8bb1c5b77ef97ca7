// SPDX-License-Identifier: Apache-2.0
// TFRecord files that Python wrote, whole and damaged.
#include <cstring>

#include "dataflow/error.h"
#include "tests/support/packed_images.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using TfRecordSourceTest = PackedImagesTest;

constexpr const char* kShard = "train-00000-of-00001";

/// The start of each record of a file, and the end of the last.
std::vector<std::size_t> bounds_of(const std::string& file) {
  std::vector<std::size_t> bounds{0};
  while (bounds.back() < file.size()) {
    std::uint64_t length = 0;
    std::memcpy(&length, file.data() + bounds.back(), 8);
    bounds.push_back(bounds.back() + 16 + length);
  }
  return bounds;
}

TEST_F(TfRecordSourceTest, GivesTheBytesThatPythonWrote) {
  for (const char* shards : {"1", "3"}) {
    pack(std::string("tfrecord shards=") + shards);
    const auto source = open("tfrecord");
    EXPECT_EQ(source->facts().size, samples_.size());
    EXPECT_EQ(source->facts().classes, 3);
    EXPECT_EQ(read(*source), samples_);
  }
}

TEST_F(TfRecordSourceTest, TakesAFileOrAListWithBraces) {
  pack("tfrecord shards=3");
  write_text(folder_ / "packed" / "train-00000-of-00003.idx", "no shard");
  EXPECT_EQ(read(*open("tfrecord")), samples_);
  plan_.directory = path("packed/train-{00000..00002}-of-00003");
  EXPECT_EQ(read(*open("tfrecord")), samples_);
  plan_.directory = path("packed/train-00000-of-00003");
  EXPECT_EQ(read(*open("tfrecord")).size(), samples_.size() / 3);
}

TEST_F(TfRecordSourceTest, KeysAndTheFirstLabelAreOptions) {
  pack("tfrecord base=0 image=image label=size");
  EXPECT_EQ(read(*open("tfrecord:image_key=image,label_key=size,label_base=0")), samples_);
  std::vector<GivenImage> all_of_class_0 = samples_;
  for (GivenImage& sample : all_of_class_0) sample.label = 0;
  EXPECT_EQ(read(*open("tfrecord:image_key=image,label_key=none")), all_of_class_0);
  pack("tfrecord base=-5");
  EXPECT_EQ(read(*open("tfrecord:label_base=-5")), samples_);
}

TEST_F(TfRecordSourceTest, RecordsMayBeTensorpacksDatapoints) {
  for (const char* how : {"msgpack", "pickle2", "pickle5"}) {
    for (const char* compress : {"none", "gzip"}) {
      pack(std::string("tfrecord record=") + how + " compress=" + compress);
      EXPECT_EQ(read(*open("tfrecord:record=datapoint")), samples_) << how << " " << compress;
      EXPECT_EQ(read(*open("tfrecord")), samples_) << how << " " << compress;
      EXPECT_TRUE(says(refusal("tfrecord:record=example"), "expected a tf.train.Example"));
    }
  }
  EXPECT_THROW(open("tfrecord:record=jpeg"), ConfigError);
}

TEST_F(TfRecordSourceTest, BoxesOfObjectsComeWithTheirSampleFromEverySource) {
  for (const std::string compress : {"", " compress=gzip"}) {
    for (const std::string source : {"tfrecord", "memory:from=tfrecord"}) {
      pack("tfrecord boxes=1" + compress);
      SCOPED_TRACE(source + compress);
      const auto opened = open(source);
      std::size_t read = 0;
      for (Sample sample; opened->next(sample); ++read) {
        opened->load(sample);
        // The third box of each record, which is higher than the image, is left out.
        const auto share = static_cast<float>(sample.index) / 128;
        EXPECT_EQ(sample.boxes,
                  (std::vector<ObjectBox>{{share, 0.25F, 0.75F, 0.5F}, {0.5F, 0.125F, 1, 1}}));
      }
      EXPECT_EQ(read, samples_.size());
    }
  }
  pack("tfrecord");  // these have xmin alone
  const auto opened = open("tfrecord");
  for (Sample sample; opened->next(sample);) {
    opened->load(sample);
    EXPECT_TRUE(sample.boxes.empty());
  }
}

TEST_F(TfRecordSourceTest, InvalidOptionsAreReportedBeforeTheRun) {
  pack("tfrecord base=0");
  EXPECT_TRUE(says(refusal("tfrecord"), "label is 0, and the first class is 1"));
  const std::string key = refusal("tfrecord:image_key=jpeg,label_base=0");
  EXPECT_TRUE(says(key, "no feature 'jpeg'"));
  EXPECT_TRUE(says(key, "image/height, image/object/bbox/xmin, image/class/label"));
  const std::string type = refusal("tfrecord:label_key=image/format");
  EXPECT_TRUE(says(type, "'image/format', one of int64, is of another type"));
  const std::string more = refusal("tfrecord:label_key=image/object/bbox/xmin");
  EXPECT_TRUE(says(more, "is of another type"));
  plan_.classes = 2;
  EXPECT_TRUE(says(refusal("tfrecord:label_base=0"), "--classes 3 or more"));
}

TEST_F(TfRecordSourceTest, ADamagedRecordCostsItselfAlone) {
  pack("tfrecord");
  const std::string whole = read_text(folder_ / "packed" / kShard);
  const std::vector<std::size_t> bounds = bounds_of(whole);
  ASSERT_EQ(bounds.size(), samples_.size() + 1);
  // Flips a bit of the image, of the bytes before it, or of the CRC; also in the first record.
  for (const std::size_t record : {0U, 5U}) {
    const std::size_t end = bounds[record + 1];
    for (const std::size_t at :
         {end - 1, end - 5, (bounds[record] + end) / 2, bounds[record] + 12}) {
      write_text(folder_ / "packed" / kShard, whole);
      edit(kShard, [&](std::string& bytes) { bytes[at] ^= 4; });
      const auto source = open("tfrecord");
      std::vector<std::string> errors;
      std::vector<GivenImage> expected = samples_;
      expected.erase(expected.begin() + static_cast<std::ptrdiff_t>(record));
      EXPECT_EQ(read(*source, &errors), expected);
      ASSERT_EQ(errors.size(), 1U);
      EXPECT_TRUE(
          says(errors[0], std::string(kShard) + "' at byte " + std::to_string(bounds[record])));
      EXPECT_TRUE(says(errors[0], "do not match their CRC"));
    }
  }
}

TEST_F(TfRecordSourceTest, ALengthThatIsDamagedCostsTheRestOfItsShard) {
  pack("tfrecord");
  const std::string whole = read_text(folder_ / "packed" / kShard);
  const std::vector<std::size_t> bounds = bounds_of(whole);
  const std::vector<GivenImage> first_five(samples_.begin(), samples_.begin() + 5);
  for (const std::size_t byte : {0U, 7U, 8U}) {
    write_text(folder_ / "packed" / kShard, whole);
    edit(kShard, [&](std::string& bytes) { bytes[bounds[5] + byte] ^= 1; });
    std::vector<std::string> errors;
    EXPECT_EQ(read(*open("tfrecord"), &errors), first_five);
    ASSERT_EQ(errors.size(), 1U);
    EXPECT_TRUE(says(errors[0], "length does not match its CRC"));
  }
  for (const std::size_t size : {bounds[5] + 1, bounds[5] + 14, bounds[6] - 1}) {
    write_text(folder_ / "packed" / kShard, whole.substr(0, size));
    std::vector<std::string> errors;
    EXPECT_EQ(read(*open("tfrecord"), &errors), first_five);
    EXPECT_EQ(errors.size(), 1U);
  }
}

TEST_F(TfRecordSourceTest, CrcsCanBeLeftAlone) {
  pack("tfrecord");
  edit(kShard, [&](std::string& bytes) {
    for (const std::size_t begin : bounds_of(bytes)) {
      if (begin > 0) std::memset(bytes.data() + begin - 4, 0, 4);
      if (begin < bytes.size()) std::memset(bytes.data() + begin + 8, 0, 4);
    }
  });
  EXPECT_TRUE(says(refusal("tfrecord"), "holds no TFRecords"));
  EXPECT_EQ(read(*open("tfrecord:crc=false")), samples_);
}

TEST_F(TfRecordSourceTest, OtherFilesAreRefused) {
  write_text(folder_ / "packed" / "a.tfrecord", "This is no file of records.");
  EXPECT_TRUE(says(refusal("tfrecord"), "holds no TFRecords"));
  write_text(folder_ / "packed" / "a.tfrecord", "");
  EXPECT_TRUE(says(refusal("tfrecord"), "hold no sample"));
}

}  // namespace
}  // namespace penstock
