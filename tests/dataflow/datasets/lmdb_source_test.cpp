// SPDX-License-Identifier: Apache-2.0
// LMDB databases of images: Caffe's Datum and tensorpack's datapoints.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "dataflow/datasets/lmdb.h"
#include "dataflow/error.h"
#include "tests/support/jpeg_writer.h"
#include "tests/support/lmdb_file.h"
#include "tests/support/pickles.h"
#include "tests/support/python.h"
#include "tests/support/source_fixture.h"
#include "tests/support/text_bytes.h"
#include "tests/support/text_files.h"
#include "tests/support/whole_run.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;

Bytes numbers(std::size_t count, int first = 0) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 3 + first);
  return bytes;
}

std::string key(int number) { return fmt::format("{:08}", number); }

class LmdbSourceTest : public SourceFixture {
 protected:
  LmdbSourceTest() : SourceFixture("lmdb") { plan_.classes = 1000; }
  void write(const std::vector<LmdbPair>& entries) const {
    folder_.write("data.mdb", lmdb_file(entries));
    folder_.write("lock.mdb", {});
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

  std::map<std::uint64_t, std::string> refused_;
};

TEST_F(LmdbSourceTest, DatumsAreEncodedImagesOrPixelsInPlanes) {
  const Bytes small = numbers(100), large = numbers(9000);
  write({{"000_a", datum(0, 0, 0, small, 7, true)}, {"001_b", datum(0, 0, 0, large, 999, true)}});
  auto source = open();
  EXPECT_EQ(source->facts().kind, SampleKind::encoded);
  EXPECT_EQ(all(*source), (std::vector<Told>{{7, {}, small}, {999, {}, large}}));
  const Bytes rgb = numbers(24, 5), grey = numbers(6);
  write({{"0", datum(3, 2, 4, rgb, 1, false)}, {"1", datum(1, 3, 2, grey, 2, false)}});
  source = open();
  EXPECT_EQ(source->facts().kind, SampleKind::pixels);
  EXPECT_EQ(all(*source),
            (std::vector<Told>{{1, {4, 2, 3, true, true}, rgb}, {2, {2, 3, 1, true, true}, grey}}));
  EXPECT_EQ(all(*open("lmdb:channels=rgb")).front().layout, (PixelLayout{4, 2, 3, true, false}));
}

TEST_F(LmdbSourceTest, DatapointsInMessagePackAreEncodedImagesOrPixels) {
  const Bytes jpeg = numbers(5000), rgb = numbers(24);
  write({{key(0), msgpack_datapoint({5000}, jpeg, 12)},
         {key(1), msgpack_datapoint({24}, rgb, 13)},
         {"__keys__", bytes_of_hex("92c4083030303030303030c4083030303030303031")},
         {"__len__", bytes_of_hex("80044b022e")},
         {"num-samples", bytes_of_hex("32")}});
  auto source = open();
  EXPECT_EQ(source->facts().kind, SampleKind::encoded);
  EXPECT_EQ(source->facts().size, 2U);
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
image = np.asfortranarray(np.array([i * 3 for i in range(24)], 'u1').reshape(2, 4, 3))
for i, point in enumerate([[jpeg, 3], [jpeg.tobytes(), np.int64(4)], [jpeg.copy(), np.array(5)], [image, 3]]):
    with open('%s/point%d' % (sys.argv[1], i), 'wb') as file:
        pickle.dump(point, file, int(sys.argv[2]))
)",
               {plan_.directory, std::to_string(protocol)});
    SCOPED_TRACE(protocol);
    const auto point = [&](int i) {
      return LmdbPair(key(i), bytes_of_text(read_text(path("point" + std::to_string(i)))));
    };
    write({point(0), point(1), point(2)});
    const Bytes jpeg = numbers(5000);
    EXPECT_EQ(all(*open(), protocol > 2),
              (std::vector<Told>{{3, {}, jpeg}, {4, {}, jpeg}, {5, {}, jpeg}}));
    write({point(3)});  // pixels, in Fortran's order
    EXPECT_EQ(all(*open(), false), (std::vector<Told>{{3, {4, 2, 3, false, true}, numbers(24)}}));
  }
}

TEST_F(LmdbSourceTest, ValuesOfPyarrowAreNamed) {
  write({{key(0), bytes_of_hex("00000000 00000000 01000000 00000000 ffffffff f0000000 10000000")}});
  EXPECT_TRUE(says(refusal(), "pyarrow.serialize(), which is unsupported"));
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
  EXPECT_TRUE(says(refused_[1], "a Datum is no valid protocol buffer (end of buffer exception)"));
  EXPECT_TRUE(says(refused_[2], "it has no label"));
  EXPECT_TRUE(says(refused_[3], "of another kind than the first"));
  EXPECT_TRUE(says(refused_[4], "it has no value"));
}

TEST_F(LmdbSourceTest, ACutFileCostsWhatLayBehind) {
  std::vector<LmdbPair> entries;
  for (int i = 0; i < 5; ++i) entries.emplace_back(key(i), datum(0, 0, 0, numbers(6000), i, true));
  Bytes file = lmdb_file(entries);
  file.resize(file.size() - 3 * 4096);  // the last page, and half of the one before
  folder_.write("data.mdb", file);
  EXPECT_EQ(all(*open()).size(), 3U);
  EXPECT_EQ(refused_.size(), 2U);
  EXPECT_TRUE(says(refused_[4], "the database is damaged"));
}

TEST_F(LmdbSourceTest, UnusableDatabasesAreReportedBeforeTheRun) {
  EXPECT_TRUE(says(refusal(), "expected LMDB files such as data.mdb"));
  for (const Bytes& bytes :
       {Bytes{}, Bytes(100), Bytes(20'000), lmdb_file({}), lmdb_file({{"0", {}}})}) {
    folder_.write("data.mdb", bytes);
    EXPECT_TRUE(says(refusal(), "data.mdb' cannot be used"));
  }
  Bytes duplicates = lmdb_file({{"0", datum(0, 0, 0, numbers(50), 1, true)}});
  put_number(duplicates, 4096 + 16 + 76, 4, 2);
  folder_.write("data.mdb", duplicates);
  EXPECT_TRUE(says(refusal(), "several values each"));
  write({{"0", datum(0, 0, 0, numbers(50), 1, true)}});
  EXPECT_TRUE(says(refusal("lmdb:format=datapoint"), "a MessagePack message"));
  EXPECT_TRUE(says(refusal("lmdb:format=caffe"), "'format' is 'caffe'"));
  EXPECT_TRUE(says(refusal("lmdb:channels=grb"), "'channels' is 'grb'"));
  plan_.classes = 1;
  EXPECT_TRUE(says(refusal(), "--classes 2"));
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
