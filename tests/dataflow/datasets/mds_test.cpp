// SPDX-License-Identifier: Apache-2.0
// MDS files that Python wrote, and damaged ones.
#include "dataflow/error.h"
#include "dataflow/values/value_at.h"
#include "tests/support/packed_set.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

class MdsTest : public PackedSet {
 protected:
  MdsTest() : PackedSet("mds") {}
  void SetUp() override {
    PackedSet::SetUp();
    if (!IsSkipped()) pack("mds", "set", "shard=5");
  }

  /// The second shard, with the bytes at `at` replaced.
  void overwrite(std::uint64_t at, const std::string& bytes) {
    if (good_.empty()) good_ = read_text(path("set/shard.00001.mds"));
    std::string changed = good_;
    changed.replace(at, bytes.size(), bytes);
    write_text(path("set/shard.00001.mds"), changed);
  }
  /// The index, with the first `from` replaced.
  void edit_index(const std::string& from, const std::string& to) {
    if (good_index_.empty()) good_index_ = read_text(path("set/index.json"));
    std::string changed = good_index_;
    ASSERT_TRUE(says(changed, from)) << from;
    changed.replace(changed.find(from), from.size(), to);
    write_text(path("set/index.json"), changed);
  }

  std::string good_, good_index_;
};

TEST_F(MdsTest, GivesWhatWasPacked) {
  const auto opened = open("mds");
  EXPECT_EQ(opened->facts().classes, 3);
  EXPECT_EQ(opened->facts().files->size(), 3U);
  EXPECT_EQ(images_of(*opened), images_);
  run("mds");
  plan_.directory += "/index.json";
  EXPECT_EQ(images_of(*open("mds")), images_);
}

TEST_F(MdsTest, FindsColumnsOfAnyEncoding) {
  for (const char* columns :
       {"image:jpeg,label:uint8", "label:int8,picture:jpeg:90", "i:int,x:jpeg,y:int",
        "a:bytes,b:uint16", "a:float32,b:str,c:jpeg,d:uint64,e:bytes", "label:str_int,x:jpeg",
        "cls:int16,jpg:bytes,other:bytes,z:uint32", "image:jpeg,class:int32,index:int64"}) {
    pack("mds", "set", std::string("columns=") + columns);
    EXPECT_EQ(images_of(*open("mds")), images_) << columns;
  }
}

TEST_F(MdsTest, AsksWhichColumnWhereThereAreSeveral) {
  pack("mds", "set", "columns=a:jpeg,b:jpeg,c:bytes,n:int,index:int32");
  expect_refusal("has 2 columns of JPEG images; there are 'a' (jpeg), 'b' (jpeg), 'c' (bytes)");
  expect_refusal("with mds:image=NAME");
  expect_refusal("has 2 columns of whole numbers", "mds:image=a");
  EXPECT_EQ(images_of(*open("mds:image=b,label=n")), images_);
  EXPECT_EQ(images_of(*open("mds:image=c,label=n")), images_);
  EXPECT_EQ(images_of(*open("mds:image=c,label=index"))[11].label, 11);
  expect_refusal("has no JPEG images in column 'n'", "mds:image=n,label=n");
  expect_refusal("has no column 'z'", "mds:image=a,label=z");
}

TEST_F(MdsTest, DamageCostsItsSampleAlone) {
  // The second shard has samples 5 to 9; sample 6 is its second.
  const std::string shard = read_text(path("set/shard.00001.mds"));
  const auto bytes = std::as_bytes(std::span(shard));
  const auto begin = values::value_at<std::uint32_t>(bytes, 8),
             end = values::value_at<std::uint32_t>(bytes, 12);
  const struct {
    std::uint64_t at, said_at;
    std::string bytes, problem;
  } damages[] = {
      {begin + 3, begin, "\x7f", "its column 'image' should have"},
      {begin + 1, begin, std::string("\x01", 1), "bytes that are in none of its columns"},
      {end - 1, begin, "\xff", "its label in column 'label' numbers no class"},
      {end - 4, begin, "\x01", "its label in column 'label' numbers no class"},
  };
  for (const auto& damage : damages) {
    overwrite(damage.at, damage.bytes);
    const std::vector<GivenImage> found = images_of(*open("mds"));
    ASSERT_EQ(found.size(), 12U);
    for (std::size_t i = 0; i < 12; ++i) EXPECT_TRUE(i == 6 || found[i] == images_[i]) << i;
    const std::string said = message_of(found[6]);
    const std::string place = "shard.00001.mds' at byte " + std::to_string(damage.said_at) + ": ";
    EXPECT_TRUE(says(said, place));
    EXPECT_TRUE(says(said, damage.problem));
  }
  // A wrong offset affects the end of one sample and the beginning of the next.
  overwrite(8, std::string(4, '\0'));
  const std::vector<GivenImage> found = images_of(*open("mds"));
  ASSERT_EQ(found.size(), 12U);
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_TRUE(i == 5 || i == 6 || found[i] == images_[i]) << i;
  }
  EXPECT_TRUE(says(message_of(found[5]), "at byte 4: the offsets there leave no place"));
  EXPECT_TRUE(says(message_of(found[6]), "at byte 8: the offsets there leave no place"));
}

TEST_F(MdsTest, ShardsThatAreNotWhatTheIndexSaysAreRefused) {
  overwrite(0, "\x06");
  expect_refusal("shard.00001.mds' has 6 samples, and its index says 5");
  write_text(path("set/shard.00001.mds"), good_ + "x");
  expect_refusal("and its index says " + std::to_string(good_.size()));
  std::filesystem::remove(path("set/shard.00001.mds"));
  expect_refusal("shard.00001.mds' is missing");
}

TEST_F(MdsTest, CompressedShardsAreRefusedWithTheCommandThatHelps) {
  std::filesystem::remove_all(path("set"));
  pack("mds", "set", "shard=5 compression=gz");
  expect_refusal("shard.00000.mds' exists only in compressed form (gz)");
  const std::string said = refusal();
  for (const char* shard : {"0", "1", "2"}) {
    const std::string file = path("set/shard.0000") + shard + ".mds";
    const std::string command = "gunzip -c '" + file + ".gz' > '" + file + "'";
    EXPECT_TRUE(shard != std::string("0") || said.find("`" + command + "`") != std::string::npos)
        << said;
    ASSERT_EQ(std::system(command.c_str()), 0);
  }
  EXPECT_EQ(images_of(*open("mds")), images_);
}

TEST_F(MdsTest, AnIndexThatMakesNoSenseIsRefused) {
  edit_index("\"version\": 2", "\"version\": 1");
  expect_refusal("shards[0].version is not 2");
  edit_index("\"format\": \"mds\"", "\"format\": \"csv\"");
  expect_refusal("shards[0].format is 'csv', and mds is known");
  edit_index("\"shard.00001.mds\"", "\"shard.00000.mds\"");
  expect_refusal("has the shard 'shard.00000.mds' twice");
  for (const char* name : {"../x.mds", "/etc/passwd", "a/../../x", ".", "..", "", "a/"}) {
    edit_index("shard.00001.mds", name);
    EXPECT_THROW(open("mds"), ConfigError) << name;
  }
  edit_index("shard.00001.mds", "\\u001b[2J");
  expect_refusal("shards[1].raw_data.basename has control characters");
  edit_index("\"samples\": 5", "\"samples\": -5");
  expect_refusal("shards[0].samples is no whole number");
  edit_index("\"samples\": 5", "\"samples\": 4294967295");
  expect_refusal("has no room for the offsets of 4294967295 samples");
  edit_index("\"column_sizes\": [null, 8]", "\"column_sizes\": [null]");
  expect_refusal("has 2 column names, 2 encodings and 1 sizes");
  edit_index("\"column_sizes\": [null, 8]", "\"column_sizes\": [null, 4]");
  expect_refusal("has no column of whole numbers");
  edit_index("\"raw_data\"", "\"row_data\"");
  expect_refusal("has no shards[0].raw_data");
  write_text(path("set/index.json"), "{");
  expect_refusal("is no JSON");
  write_text(path("set/index.json"), "[]");
  expect_refusal("it is no object");
  std::filesystem::remove(path("set/index.json"));
  expect_refusal("has no index.json");
}

}  // namespace
}  // namespace penstock
