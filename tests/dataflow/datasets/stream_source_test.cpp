// SPDX-License-Identifier: Apache-2.0
// Compressed shards: bytes, order, memory limits, and damage.
#include "dataflow/datasets/stream_source.h"

#include <zlib.h>

#include <set>
#include <tuple>

#include "dataflow/datasets/sample_order.h"
#include "dataflow/error.h"
#include "dataflow/values/crc32c.h"
#include "tests/support/packed_images.h"
#include "tests/support/tar_writer.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

std::string gzipped(const std::string& data) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, data.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
  stream.avail_in = static_cast<uInt>(data.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

class StreamSourceTest : public PackedImagesTest {
 protected:
  /// Identifies a sample independently of its position.
  using Place = std::tuple<std::uint64_t, std::uint64_t, std::string>;  // epoch, index, content
  std::vector<Place> places(const std::string& source) const {
    std::vector<Place> places;
    for (const GivenSample& given : all_of(*open(source))) {
      places.emplace_back(given.epoch, given.index, given.content);
    }
    return places;
  }
};

TEST_F(StreamSourceTest, AStopRequestEndsTheCountingOfSamples) {
  std::stop_source stop;
  plan_.stop = stop.get_token();
  stop.request_stop();
  for (const char* const shards : {"tfrecord shards=2 compress=gzip", "tfrecord shards=2"}) {
    pack(shards);
    EXPECT_EQ(thrown_by<Error>([&] { open("tfrecord"); }),
              "stopped while '" + plan_.directory + "' was being read");
  }
}

TEST_F(StreamSourceTest, GivesTheBytesThatPythonWroteInTheirOrder) {
  for (const char* kind : {"tfrecord", "webdataset"}) {
    for (const char* how : {"gzip", "zlib", "zstd"}) {
      if (kind == std::string("webdataset") && how == std::string("zlib")) continue;
      if (how == std::string("zstd") &&
          (match_entry(datasets::decompressor_table(), "zstd") == nullptr ||
           std::system("zstd --version > /dev/null") != 0)) {
        GTEST_LOG_(INFO) << "built without zstd, or no program that writes it: left out";
        continue;
      }
      pack(std::string(kind) + " shards=5 compress=" + how);
      for (const char* readers : {"1", "2", "9"}) {
        const auto source = open(std::string(kind) + ":readers=" + readers);
        EXPECT_EQ(source->facts().size, samples_.size());
        EXPECT_EQ(source->facts().classes, 3);
        EXPECT_EQ(read(*source), samples_) << kind << " " << how << " " << readers;
      }
    }
  }
}

TEST_F(StreamSourceTest, TakesShardsOfBothKinds) {
  pack("tfrecord shards=2 compress=none");
  edit("train-00001-of-00002", [](std::string& bytes) { bytes = gzipped(bytes); });
  EXPECT_EQ(read(*open("tfrecord")), samples_);
}

TEST_F(StreamSourceTest, GivesEachSampleOnceInEveryEpochOverAllRanks) {
  pack("tfrecord shards=5 compress=gzip");
  plan_.shuffle = true;
  plan_.epochs = 3;
  const std::string whole = "tfrecord:readers=3,shuffle_buffer=4";
  for (const std::int32_t ranks : {1, 2, 7}) {
    plan_.ranks = ranks;
    std::multiset<Place> seen;
    for (plan_.rank = 0; plan_.rank < ranks; ++plan_.rank) {
      const std::vector<Place> places_now = places(whole);
      const auto source = open(whole);
      const std::size_t share = source->facts().size;
      EXPECT_EQ(source->facts().size_over_ranks, samples_.size());
      EXPECT_EQ(places_now.size(), 3 * share);
      EXPECT_LE(share - samples_.size() / static_cast<std::size_t>(ranks), 1U);
      EXPECT_TRUE(std::ranges::is_sorted(places_now, {}, [](const Place& place) {
        return std::get<0>(place);
      })) << "an epoch ends before the next begins";
      seen.insert(places_now.begin(), places_now.end());
    }
    ASSERT_EQ(seen.size(), 3 * samples_.size());
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      for (std::uint64_t i = 0; i < samples_.size(); ++i) {
        EXPECT_EQ(seen.count({epoch, i, samples_[i].content}), 1U) << epoch << " " << i;
      }
    }
  }
}

TEST_F(StreamSourceTest, TheOrderIsThatOfTheSeedTheEpochAndTheOptions) {
  pack("webdataset shards=5 compress=gzip");
  plan_.shuffle = true;
  plan_.epochs = 2;
  const auto indices = [&](const std::string& source) {
    std::vector<std::uint64_t> found;
    for (const Place& place : places(source)) found.push_back(std::get<1>(place));
    return found;
  };
  const std::vector<std::uint64_t> order = indices("webdataset:shuffle_buffer=6");
  for (int again = 0; again < 5; ++again) {
    EXPECT_EQ(indices("webdataset:shuffle_buffer=6,read_ahead=1"), order);
  }
  EXPECT_NE(indices("webdataset:shuffle_buffer=1"), order);
  EXPECT_NE(indices("webdataset:shuffle_buffer=6,readers=2"), order);
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>(samples_.size());
  EXPECT_FALSE(std::equal(order.begin(), middle, middle)) << "epochs differ";
  plan_.seed = 2;
  EXPECT_NE(indices("webdataset:shuffle_buffer=6"), order);
  plan_.seed = 1;
  for (const std::uint64_t first : {1U, 20U, 21U, 30U, 42U, 50U}) {
    plan_.first_sample = first;
    const auto begin =
        order.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(first, order.size()));
    EXPECT_EQ(indices("webdataset:shuffle_buffer=6"), std::vector(begin, order.end())) << first;
  }
}

TEST_F(StreamSourceTest, EndsWhileItsReadersWait) {
  pack("tfrecord shards=5 compress=gzip");
  plan_.epochs = -1;
  plan_.shuffle = true;
  for (const char* options : {"", ":read_ahead=1", ":readers=1,read_ahead=1,shuffle_buffer=1"}) {
    for (const int taken : {0, 1, 30}) {
      const auto source = open("tfrecord" + std::string(options));
      Sample sample;
      for (int i = 0; i < taken; ++i) ASSERT_TRUE(source->next(sample));
    }
  }
}

TEST_F(StreamSourceTest, DamageIsNamedAndCounted) {
  pack("tfrecord shards=2 compress=gzip");
  const std::string shard = "train-00000-of-00002";
  const std::string path_of_shard = path("packed/" + shard);
  const std::string whole = read_text(path_of_shard);
  const auto damage = [&](const std::string& bytes, std::size_t most_left,
                          std::vector<std::string> problems) {
    write_text(path_of_shard, bytes);
    std::vector<std::string> errors;
    const auto source = open("tfrecord");
    const std::size_t left = read(*source, &errors).size();
    EXPECT_EQ(source->facts().size, left + errors.size());
    EXPECT_GE(left, samples_.size() - samples_.size() / 2);
    EXPECT_LE(left, most_left);
    ASSERT_EQ(errors.size(), problems.size());
    for (std::size_t i = 0; i < errors.size(); ++i) {
      EXPECT_TRUE(says(errors[i], shard + "' at byte "));
      EXPECT_TRUE(says(errors[i], problems[i]));
    }
  };
  damage(whole.substr(0, whole.size() / 2), samples_.size() - 2, {"cut off"});
  damage(whole.substr(0, whole.size() - 1), samples_.size(), {"cut off"});
  // Random bytes are stored uncompressed, so the record's CRC finds the change, and then gzip's
  // CRC.
  std::string flipped = whole;
  flipped[whole.size() / 4] ^= 1;
  damage(flipped, samples_.size() - 1,
         {"do not match their CRC", "the compressed data are damaged"});
}

TEST_F(StreamSourceTest, ASampleThatGoesAwayIsDamageAsWell) {
  pack("tfrecord shards=2 compress=gzip");
  plan_.epochs = 2;
  const auto source = open("tfrecord:read_ahead=1");
  const std::string shard = "train-00001-of-00002";
  edit(shard, [](std::string& bytes) { bytes.resize(bytes.size() / 4); });
  std::vector<std::string> errors;
  const std::size_t left = read(*source, &errors).size();
  EXPECT_EQ(left + errors.size(), 2 * samples_.size());
  EXPECT_GT(errors.size(), 2U);
  EXPECT_TRUE(says(errors.back(), "it no longer exists"));
}

TEST_F(StreamSourceTest, TooLargeContentsAreRefusedBeforeTheyAreDecompressed) {
  // The file has a thousandth of this size.
  const std::string zeros(std::size_t{64} << 20, '\0');
  const std::string good = tar_file("a.jpg", "A") + tar_file("a.cls", "1");
  const std::string bomb = gzipped(good + tar_file("b.jpg", zeros));
  EXPECT_LT(bomb.size(), zeros.size() / 500);
  write_text(folder_ / "packed" / "a.tar.gz", bomb);
  std::vector<std::string> errors;
  EXPECT_EQ(read(*open("webdataset:max_record=1MiB"), &errors),
            (std::vector<GivenImage>{{1, "A"}}));
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_TRUE(says(errors[0], "a file of 67108864 bytes, and max_record is 1048576"));

  pack("tfrecord");
  edit("train-00000-of-00001", [](std::string& bytes) {
    std::string header("\0\0\0\0\0\1\0\0", 8);
    const std::uint32_t crc =
        values::masked_crc32c(values::crc32c(std::as_bytes(std::span(header))));
    header.append(reinterpret_cast<const char*>(&crc), 4);
    bytes = gzipped(bytes + header);
  });
  errors.clear();
  EXPECT_EQ(read(*open("tfrecord"), &errors), samples_);
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_TRUE(says(errors[0], "it has 1099511627776 bytes, and max_record is 268435456"));
}

TEST_F(StreamSourceTest, UnusableStreamsAreReportedBeforeTheRun) {
  pack("tfrecord base=0 compress=gzip");
  EXPECT_TRUE(says(refusal("tfrecord"), "first class is 1"));
  plan_.classes = 2;
  EXPECT_TRUE(says(refusal("tfrecord:label_base=0"), "--classes 3"));
  plan_.classes = 3;
  for (const char* options : {"shuffle_buffer=0", "readers=0", "readers=1000", "max_record=0"}) {
    const std::string source = std::string("tfrecord:label_base=0,") + options;
    EXPECT_TRUE(says(thrown_by<ConfigError>([&] { open(source); }), "of compressed shards is"));
  }
  plan_.ranks = 22;
  EXPECT_TRUE(says(refusal("tfrecord:label_base=0"), "22 ranks"));
  plan_.ranks = 1;
  pack("webdataset compress=gzip label=json");
  EXPECT_TRUE(says(refusal("webdataset"), "no label, a file .cls"));
  write_text(folder_ / "packed" / "train-000000.tar.gz", gzipped("This is no tar."));
  EXPECT_TRUE(says(refusal("webdataset"), "cut off in a header"));
  pack("tfrecord");
  edit("train-00000-of-00001", [](std::string& bytes) { bytes = gzipped("This is no record."); });
  EXPECT_TRUE(says(refusal("tfrecord"), "holds no TFRecords"));
}

TEST(StreamOrder, SharesAreEqualAndReadFewShardsInCommon) {
  const std::vector<std::uint64_t> samples{10, 0, 7, 1, 30, 3};
  DataPlan plan;
  for (const std::int32_t ranks : {1, 2, 3, 51}) {
    plan.ranks = ranks;
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<std::vector<int>> seen;
      for (const std::uint64_t count : samples) seen.emplace_back(count);
      std::size_t parts_in_all = 0;
      for (plan.rank = 0; plan.rank < ranks; ++plan.rank) {
        const datasets::StreamOrder order(plan, samples);
        std::uint64_t share = 0;
        for (const datasets::ShardPart& part : order.parts(epoch)) {
          EXPECT_GT(part.count, 0U);
          share += part.count;
          for (std::uint64_t i = 0; i < part.count; ++i) ++seen[part.shard].at(part.first + i);
          ++parts_in_all;
        }
        EXPECT_EQ(share, order.size());
        EXPECT_LE(order.size() - 51 / static_cast<std::uint64_t>(ranks), 1U);
      }
      EXPECT_LE(parts_in_all, 5U + static_cast<std::size_t>(ranks) - 1);
      for (const std::vector<int>& shard : seen) {
        EXPECT_EQ(shard, std::vector<int>(shard.size(), 1));
      }
    }
  }
  plan = {};
  EXPECT_NE(datasets::StreamOrder(plan, samples).parts(0),
            datasets::StreamOrder(plan, samples).parts(1));
  EXPECT_EQ(datasets::StreamOrder(plan, samples).parts(1),
            datasets::StreamOrder(plan, samples).parts(1));
  EXPECT_EQ(datasets::StreamOrder(plan, samples).samples_before(4), 18U);
  EXPECT_THROW(datasets::StreamOrder(plan, {0, 0}), ConfigError);
  EXPECT_THROW(datasets::StreamOrder(plan, {std::uint64_t{1} << 32}), ConfigError);
}

}  // namespace
}  // namespace penstock
