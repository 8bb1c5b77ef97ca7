// SPDX-License-Identifier: Apache-2.0
// Which samples several processes saw: merged files, and real producers of two shards.
#include "bench/dataset/coverage.h"

#include <gtest/gtest.h>

#include "dataflow/error.h"
#include "tests/support/coloured_images.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thrown_by.h"
#include "tests/support/words.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

/// The file of one of two ranks over ten samples; `epochs` are their objects.
dataset::CoverageText file_of(int rank, const std::string& epochs, int samples = 10) {
  return {"rank " + std::to_string(rank), R"({"schema":1,"samples":)" + std::to_string(samples) +
                                              R"(,"rank":)" + std::to_string(rank) +
                                              R"(,"ranks":2,"share":5,"epochs":[)" + epochs + "]}"};
}
// Digits hold four samples each, the first in the lowest bit: 5 is samples 0 and 2.
constexpr const char *kEven = R"({"epoch":0,"twice":0,"seen":"551"})",
                     *kOdd = R"({"epoch":0,"twice":0,"seen":"aa2"})";

TEST(Coverage, OfRanksThatShareAnEpochIsExact) {
  const dataset::Coverage coverage = dataset::merge_coverage({file_of(0, kEven), file_of(1, kOdd)});
  EXPECT_TRUE(coverage.is_exact());
  ASSERT_EQ(coverage.epochs.size(), 1U);
  EXPECT_EQ(coverage.epochs[0].once, 10U);
  EXPECT_TRUE(coverage.epochs[0].is_over);
  EXPECT_TRUE(says(to_text(coverage), "each of the 10 samples was seen exactly once"));
}

TEST(Coverage, NamesSamplesThatAreMissing) {
  const dataset::Coverage coverage = dataset::merge_coverage(
      {file_of(0, kEven), file_of(1, R"({"epoch":0,"twice":1,"seen":"ba0"})")});  // 0 for 9
  EXPECT_FALSE(coverage.is_exact());
  EXPECT_EQ(coverage.epochs[0].missing, 1U);
  EXPECT_EQ(coverage.epochs[0].more, 1U) << "sample 0 by both ranks";
  EXPECT_EQ(coverage.epochs[0].missing_samples, "9");
  EXPECT_TRUE(says(to_text(coverage), "samples 9"));
}

TEST(Coverage, OfAnEpochThatIsNotOverMayLackSamples) {
  const dataset::Coverage coverage = dataset::merge_coverage(
      {file_of(0, std::string(kEven) + R"(,{"epoch":1,"twice":0,"seen":"100"})"),
       file_of(1, kOdd)});
  EXPECT_TRUE(coverage.is_exact());
  EXPECT_FALSE(coverage.epochs[1].is_over);
  EXPECT_TRUE(says(to_text(coverage), "exactly once in each epoch that is over"));
}

TEST(Coverage, WithoutTheFileOfARankIsNotExact) {
  const dataset::Coverage coverage = dataset::merge_coverage({file_of(0, kEven)});
  EXPECT_FALSE(coverage.is_exact());
  EXPECT_TRUE(says(to_text(coverage), "rank 1 of 2 has no file here"));
}

TEST(Coverage, RefusesDamagedFilesByName) {
  const auto refusal = [](const std::vector<dataset::CoverageText>& files) {
    return thrown_by<DataError>([&] { return dataset::merge_coverage(files); });
  };
  EXPECT_TRUE(says(refusal({{"x.json", "{}"}}), "'x.json' is not what queue:coverage=FILE writes"));
  EXPECT_TRUE(
      says(refusal({file_of(0, R"({"epoch":0,"twice":0,"seen":"55"})")}), "3 hexadecimal digits"));
  EXPECT_TRUE(
      says(refusal({file_of(0, R"({"epoch":0,"twice":0,"seen":"5g1"})")}), "hexadecimal digits"));
  EXPECT_TRUE(says(refusal({file_of(0, R"({"epoch":0,"twice":0,"seen":"558"})")}),
                   "no bits beyond the last sample"));
  EXPECT_TRUE(
      says(refusal({file_of(0, kEven), file_of(0, kOdd)}), "a rank that no other file has"));
  EXPECT_TRUE(says(refusal({file_of(0, kEven), file_of(1, "", 9)}), "10, as in the first file"));
}

/// Two producers with a shard each, and a consumer of both.
class ShardCoverage : public testing::Test {
 protected:
  ShardCoverage() { write_coloured_images(folder_, "data", 4, 10); }

  std::string path(const std::string& name) const { return (folder_.path() / name).native(); }
  static ChildExit penstock(const Words& words) {
    return exit_of(joined({PENSTOCK_PROGRAM}, words));
  }
  /// Serves more than two epochs of its 20 samples.
  ChildCommand serve(const std::string& shard) const {
    return {
        .arguments = {PENSTOCK_PROGRAM, "serve",
                      "--fake-location=queue:crop=full,coverage=" + path("seen.json"),
                      "--data-dir=" + path("data"), "--shard=" + shard, "--batch-size=4",
                      "--model=null", "--image-size=16", "--classes=4", "--num-batches=12",
                      "--endpoint=ipc://" + path("socket" + shard.substr(0, 1)), "--timeout=30s"},
        .timeout = 50s};
  }

  TempFolder folder_;
};

TEST_F(ShardCoverage, OfTwoShardsIsExactAndOneShardAloneIsReported) {
  {
    ChildProcess first(serve("0/2")), second(serve("1/2"));
    const ChildExit consumer = penstock(
        {"run",
         "--fake-location=zmq-consume:endpoint=ipc://" + path("socket0") + "+ipc://" +
             path("socket1"),
         "--model=null", "--image-size=16", "--classes=4", "--batch-size=4", "--num-batches=22",
         "--num-warmup-batches=2", "--noextend-window", "--timeout=30s"});
    ASSERT_EQ(consumer.code, 0) << consumer.last_words;
    ASSERT_EQ(first.wait().code, 0) << first.wait().last_words;
    ASSERT_EQ(second.wait().code, 0) << second.wait().last_words;
  }
  const ChildExit both =
      penstock({"dataset", "coverage", path("seen.json.0"), path("seen.json.1")});
  EXPECT_EQ(both.code, 0) << both.last_words;
  EXPECT_TRUE(says(both.output, "      0         40          0          0\n")) << both.output;
  EXPECT_TRUE(says(both.output, "each of the 40 samples was seen exactly once"));
  const ChildExit alone = penstock({"dataset", "coverage", path("seen.json.0")});
  EXPECT_EQ(alone.code, 6);
  EXPECT_TRUE(says(alone.output, "rank 1 of 2 has no file here"));
  EXPECT_TRUE(says(alone.output, "        20          0         20")) << alone.output;
}

}  // namespace
}  // namespace penstock
