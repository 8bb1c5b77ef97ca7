// SPDX-License-Identifier: Apache-2.0
// LMDB databases of images: Caffe's Datum and tensorpack's datapoints.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "dataflow/datasets/datum.h"
#include "dataflow/datasets/mapped_file.h"
#include "dataflow/error.h"
#include "dataflow/source.h"
#include "tests/support/jpeg_writer.h"
#include "tests/support/lmdb_file.h"
#include "tests/support/pickles.h"
#include "tests/support/python.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thrown_by.h"
#include "tests/support/whole_run.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;

Bytes numbers(std::size_t count, int first = 0) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 3 + first);
  return bytes;
}

std::string key(int number) {
  char text[16];
  std::snprintf(text, sizeof text, "%08d", number);
  return text;
}

class LmdbSourceTest : public testing::Test {
 protected:
  LmdbSourceTest() {
    plan_.directory = folder_.path().string();
    plan_.epochs = 1;
    plan_.shuffle = false;
    plan_.classes = 1000;
  }
  void write(const std::vector<LmdbPair>& entries) const {
    folder_.write("data.mdb", lmdb_file(entries));
    folder_.write("lock.mdb", {});
  }
  std::unique_ptr<Source> open(std::string_view text = "lmdb") const {
    const ComponentText parts = parse_component(text);
    const SourceEntry& entry = find_entry(source_table(), parts.name);
    return entry.make(plan_, Options(entry.name, entry.options, parts));
  }
  std::string refusal(std::string_view text = "lmdb") const {
    return thrown_by<ConfigError>([&] { open(text); });
  }
  struct Told {
    std::int32_t label;
    PixelLayout layout;
    Bytes content;
    bool operator==(const Told&) const = default;
  };
  /// All samples; errors go to `refused_`.
  std::vector<Told> all(Source& source, bool lent = true) {
    std::vector<Told> told;
    for (Sample sample; source.next(sample);) {
      try {
        source.load(sample);
      } catch (const DataError& error) {
        refused_[sample.index] = error.what();
        continue;
      }
      EXPECT_EQ(sample.bytes.empty(), lent);
      told.push_back(
          {sample.label, sample.layout, Bytes(sample.content().begin(), sample.content().end())});
    }
    return told;
  }

  TempFolder folder_;
  DataPlan plan_;
  std::map<std::uint64_t, std::string> refused_;
};

TEST_F(LmdbSourceTest, DatumsAreEncodedImagesOrPixelsInPlanes) {
  const Bytes small = numbers(100), large = numbers(9000);
  write({{"000_a", datum(0, 0, 0, small, 7, true)}, {"001_b", datum(0, 0, 0, large, 999, true)}});
  auto source = open();
  EXPECT_EQ(source->kind(), SampleKind::encoded);
  EXPECT_EQ(all(*source), (std::vector<Told>{{7, {}, small}, {999, {}, large}}));
  const Bytes rgb = numbers(24, 5), grey = numbers(6);
  write({{"0", datum(3, 2, 4, rgb, 1, false)}, {"1", datum(1, 3, 2, grey, 2, false)}});
  source = open();
  EXPECT_EQ(source->kind(), SampleKind::pixels);
  EXPECT_EQ(all(*source),
            (std::vector<Told>{{1, {4, 2, 3, true, true}, rgb}, {2, {2, 3, 1, true, true}, grey}}));
  EXPECT_EQ(all(*open("lmdb:channels=rgb")).front().layout, (PixelLayout{4, 2, 3, true, false}));
}

TEST_F(LmdbSourceTest, DatapointsInMessagePackAreEncodedImagesOrPixels) {
  const Bytes jpeg = numbers(5000), rgb = numbers(24);
  write({{key(0), msgpack_datapoint({5000}, jpeg, 12)},
         {key(1), msgpack_datapoint({24}, rgb, 13)},
         {"__keys__", bytes_of_hex("92c4083030303030303030c4083030303030303031")}});
  auto source = open();
  EXPECT_EQ(source->kind(), SampleKind::encoded);
  EXPECT_EQ(source->size(), 2U);
  EXPECT_EQ(all(*source), (std::vector<Told>{{12, {}, jpeg}, {13, {}, rgb}}));
  write({{key(0), msgpack_datapoint({2, 4, 3}, rgb, 0)}});
  EXPECT_EQ(all(*open()), (std::vector<Told>{{0, {4, 2, 3, false, true}, rgb}}));
  EXPECT_EQ(refused_.size(), 0U);
}

TEST_F(LmdbSourceTest, PickledDatapointsAreRead) {
  if (!python_has("numpy")) GTEST_SKIP() << "needs /usr/bin/python3 with NumPy (python3-numpy)";
  for (int protocol = 2; protocol <= 5; ++protocol) {
    run_python(R"(
import pickle, sys, numpy as np
jpeg = np.frombuffer(bytes(i * 3 % 256 for i in range(5000)), 'u1')
for i, point in enumerate([[jpeg, 3], [jpeg.tobytes(), np.int64(4)], [jpeg.copy(), np.array(5)]]):
    with open('%s/point%d' % (sys.argv[1], i), 'wb') as file:
        pickle.dump(point, file, int(sys.argv[2]))
)",
               {plan_.directory, std::to_string(protocol)});
    std::vector<LmdbPair> entries;
    for (int i = 0; i < 3; ++i) {
      const datasets::MappedFile file((folder_ / ("point" + std::to_string(i))).string());
      entries.emplace_back(key(i), Bytes(file.bytes().begin(), file.bytes().end()));
    }
    write(entries);
    const Bytes jpeg = numbers(5000);
    EXPECT_EQ(all(*open(), protocol > 2),
              (std::vector<Told>{{3, {}, jpeg}, {4, {}, jpeg}, {5, {}, jpeg}}))
        << protocol;
  }
}

TEST_F(LmdbSourceTest, ADamagedValueIsNamedAndCostsItselfAlone) {
  Bytes cut = datum(0, 0, 0, numbers(50), 7, true);
  cut.resize(30);
  write({{"0", datum(0, 0, 0, numbers(50), 1, true)},
         {"1", cut},
         {"2", datum(0, 0, 0, numbers(50), -2, true)},
         {"3", datum(3, 2, 4, numbers(24), 1, false)},
         {"4", {}},
         {"5", datum(0, 0, 0, numbers(50), 2, true)}});
  const std::vector<Told> told = all(*open());
  EXPECT_EQ(told.size(), 2U);
  ASSERT_EQ(refused_.size(), 4U);
  EXPECT_NE(refused_[1].find("a Datum is no valid protocol buffer (end of buffer exception)"),
            std::string::npos)
      << refused_[1];
  EXPECT_NE(refused_[2].find("it has no label"), std::string::npos) << refused_[2];
  EXPECT_NE(refused_[3].find("of another kind than the first"), std::string::npos) << refused_[3];
  EXPECT_NE(refused_[4].find("it has no value"), std::string::npos) << refused_[4];
}

TEST_F(LmdbSourceTest, ACutFileCostsWhatLayBehind) {
  std::vector<LmdbPair> entries;
  for (int i = 0; i < 5; ++i) entries.emplace_back(key(i), datum(0, 0, 0, numbers(6000), i, true));
  Bytes file = lmdb_file(entries);
  file.resize(file.size() - 3 * 4096);  // the last page, and half of the one before
  folder_.write("data.mdb", file);
  EXPECT_EQ(all(*open()).size(), 3U);
  EXPECT_EQ(refused_.size(), 2U);
  EXPECT_NE(refused_[4].find("the database is damaged"), std::string::npos) << refused_[4];
}

TEST_F(LmdbSourceTest, WhatCannotBeUsedIsSaidBeforeTheRun) {
  EXPECT_NE(refusal().find("expected LMDB files such as data.mdb"), std::string::npos) << refusal();
  for (const Bytes& bytes :
       {Bytes{}, Bytes(100), Bytes(20'000), lmdb_file({}), lmdb_file({{"0", {}}})}) {
    folder_.write("data.mdb", bytes);
    EXPECT_NE(refusal().find("data.mdb' cannot be used"), std::string::npos) << refusal();
  }
  Bytes duplicates = lmdb_file({{"0", datum(0, 0, 0, numbers(50), 1, true)}});
  put_number(duplicates, 4096 + 16 + 76, 4, 2);
  folder_.write("data.mdb", duplicates);
  EXPECT_NE(refusal().find("several values each"), std::string::npos) << refusal();
  write({{"0", datum(0, 0, 0, numbers(50), 1, true)}});
  EXPECT_NE(refusal("lmdb:format=datapoint").find("a MessagePack message"), std::string::npos);
  EXPECT_NE(refusal("lmdb:format=caffe").find("'format' is 'caffe'"), std::string::npos);
  EXPECT_NE(refusal("lmdb:channels=grb").find("'channels' is 'grb'"), std::string::npos);
  plan_.classes = 1;
  EXPECT_NE(refusal().find("--classes 2"), std::string::npos) << refusal();
}

TEST(Datum, FieldsOfEveryKindAreSteppedOver) {
  // channels=3, an unknown varint, 64 bits, 32 bits and bytes, floats packed, label=300.
  const Bytes bytes = bytes_of_hex(
      "0803"
      "4801"
      "510102030405060708"
      "5d01020304"
      "62020102"
      "320400000000"
      "28ac02");
  const datasets::Datum datum = datasets::parse_datum(bytes);
  EXPECT_EQ(datum.channels, 3);
  EXPECT_TRUE(datum.has_floats);
  EXPECT_EQ(datum.label, 300);
  for (const char* hex : {"08", "0b", "2205", "22ffffffffffffffffff01", "0affff", "00", "2201",
                          "08ffffffffffffffffffffff01", "2802ff"}) {
    const Bytes wrong = bytes_of_hex(hex);
    EXPECT_THROW(datasets::parse_datum(wrong), DataError) << hex;
  }
}

TEST_F(LmdbSourceTest, FeedsARun) {
  std::vector<LmdbPair> entries;
  for (int i = 0; i < 6; ++i) {
    entries.emplace_back(key(i), datum(0, 0, 0, encode_jpeg(make_test_image(90 + i, 80)), i, true));
  }
  write(entries);
  run_of("queue:source=lmdb", plan_.directory);
}

}  // namespace
}  // namespace penstock
