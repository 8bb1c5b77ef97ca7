// SPDX-License-Identifier: Apache-2.0
// Times of batches: figures of a window, and distributions over a run, of known series, with clocks
// that are known within a bound and with unknown clocks.
#include "feeders/remote/receive/delivery_times.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "bench/run/run_window.h"

namespace penstock {
namespace {

constexpr std::int64_t kBegun = 1'000'000'000'000;
constexpr remote::ClockBounds::Estimate kOurs{};

/// A batch of 4 images that took `making` and then waited `holding`, in ns.
remote::FramedHeader batch(std::int64_t making, std::int64_t holding, std::uint64_t producer = 1) {
  return {.producer = producer,
          .begun_ns = kBegun,
          .ready_ns = kBegun + making,
          .sent_ns = kBegun + making + holding,
          .images = 4};
}

class DeliveryTimesTest : public testing::Test {
 protected:
  void add(const remote::FramedHeader& header, std::int64_t way,
           const std::optional<remote::ClockBounds::Estimate>& ahead = kOurs) {
    times_.add(header, header.sent_ns + way, ahead);
  }
  std::vector<StageSums> now() const { return stage_sums(probe_, Time{}); }
  /// The figures since `begin`.
  std::map<std::string, double> facts(const std::vector<StageSums>& begin) const {
    std::vector<StageSums> window = now();
    for (std::size_t i = 0; i < window.size(); ++i) window[i].add(begin[i], -1);
    std::map<std::string, double> facts = probe_.facts();
    add_outside_times(probe_, window, facts);
    return facts;
  }

  Probe probe_;
  remote::DeliveryTimes times_{probe_, -1};
};

TEST_F(DeliveryTimesTest, MeansCoverTheWindowAlone) {
  add(batch(900'000, 900'000), 900'000);
  const std::vector<StageSums> begin = now();
  for (std::int64_t i = 1; i <= 9; ++i) add(batch(1'000 * i, 100 * i), 10 * i);
  const auto found = facts(begin);
  EXPECT_DOUBLE_EQ(found.at("batches_timed_in_window"), 9);
  EXPECT_DOUBLE_EQ(found.at("producing_window_mean_s"), 5e-6);
  EXPECT_DOUBLE_EQ(found.at("socket_wait_window_mean_s"), 5e-7);
  EXPECT_DOUBLE_EQ(found.at("hand_off_window_mean_s"), 5e-8);
  EXPECT_FALSE(found.contains("hand_off_clock_bound_us")) << "the clock is our own";
  EXPECT_TRUE(stage_uses(probe_, now()).empty()) << "these are no stages of this process";
}

TEST_F(DeliveryTimesTest, AClockThatIsAheadIsSetRightWithinItsBound) {
  const std::vector<StageSums> begin = now();
  // Sent 10 ms earlier by the consumer's clock, so in transit for 10 ms more.
  add(batch(5'000, 0), 2'000'000,
      remote::ClockBounds::Estimate{.offset_ns = 10e6, .bound_ns = 3e5});
  // A batch may seem to arrive before it was sent, within the bound.
  add(batch(5'000, 0), -10'200'000,
      remote::ClockBounds::Estimate{.offset_ns = 10e6, .bound_ns = 3e5});
  add(batch(5'000, 0), -10'400'000,
      remote::ClockBounds::Estimate{.offset_ns = 10e6, .bound_ns = 3e5});
  const auto found = facts(begin);
  EXPECT_DOUBLE_EQ(found.at("batches_timed_in_window"), 2);
  EXPECT_DOUBLE_EQ(found.at("hand_off_window_mean_s"), 0.006);
  EXPECT_DOUBLE_EQ(found.at("hand_off_clock_bound_us"), 300);
}

TEST_F(DeliveryTimesTest, TheWidestBoundOfAllProducersIsStated) {
  add(batch(1, 1, 7), 5, remote::ClockBounds::Estimate{.offset_ns = 0, .bound_ns = 5e5});
  add(batch(1, 1, 8), 5, remote::ClockBounds::Estimate{.offset_ns = 0, .bound_ns = 2e5});
  add(batch(1, 1, 7), 5, remote::ClockBounds::Estimate{.offset_ns = 0, .bound_ns = 1e5});
  EXPECT_DOUBLE_EQ(probe_.facts().at("hand_off_clock_bound_us"), 200);
}

TEST_F(DeliveryTimesTest, DelaysByUnknownClocksAreRelativeToTheShortest) {
  const std::vector<StageSums> begin = now();
  const std::int64_t off = 300'000'000'000;
  for (const std::int64_t way : {500, 400, 900}) add(batch(10, 10), off + way, std::nullopt);
  add(batch(10, 10, 2), -off, std::nullopt);
  const auto found = facts(begin);
  EXPECT_DOUBLE_EQ(found.at("hand_off_window_mean_s"), 500e-9 / 4);
  EXPECT_DOUBLE_EQ(found.at("hand_off_clocks_unknown"), 1);
}

TEST_F(DeliveryTimesTest, UnknownOrImpossibleTimesAreLeftOut) {
  const std::vector<StageSums> begin = now();
  times_.add({.producer = 1}, 5, kOurs);
  times_.add({.producer = 1, .sent_ns = 5}, 9, kOurs);
  add(batch(5, -1), 10);
  add(batch(-5, 10), 10);
  add(batch(5, 5), -1);
  add(batch(INT64_MAX / 2, 5), 10);
  times_.add({.producer = 1, .ready_ns = INT64_MIN, .sent_ns = INT64_MAX}, 5, std::nullopt);
  times_.add({.producer = 1, .ready_ns = 5, .sent_ns = 5}, INT64_MAX, kOurs);
  EXPECT_FALSE(facts(begin).contains("batches_timed_in_window"));
  times_.add({.producer = 1, .ready_ns = 100, .sent_ns = 107}, 110, kOurs);
  const auto found = facts(begin);
  EXPECT_DOUBLE_EQ(found.at("socket_wait_window_mean_s"), 7e-9);
  EXPECT_FALSE(found.contains("producing_window_mean_s")) << "it did not say when it was begun";
}

TEST_F(DeliveryTimesTest, BatchesThatWereReadyBeforeAreLeftOut) {
  Probe probe;
  remote::DeliveryTimes times(probe, kBegun + 2'000);
  times.add(batch(1'000, 5'000), kBegun + 6'500, kOurs);
  times.add(batch(3'000, 5'000), kBegun + 8'500, kOurs);
  std::map<std::string, double> facts;
  add_outside_times(probe, stage_sums(probe, Time{}), facts);
  EXPECT_DOUBLE_EQ(facts.at("batches_timed_in_window"), 1);
  EXPECT_DOUBLE_EQ(facts.at("producing_window_mean_s"), 3e-6);
}

TEST_F(DeliveryTimesTest, MemoryIsBounded) {
  const std::vector<StageSums> begin = now();
  for (std::uint64_t i = 1; i <= 3 * remote::DeliveryTimes::kProducers; ++i) {
    add(batch(5, 5, i), 100, std::nullopt);
  }
  EXPECT_DOUBLE_EQ(facts(begin).at("batches_timed_in_window"),
                   double{remote::DeliveryTimes::kProducers});
}

// ---- hand off times ----------------------------------------------------------

// Times of batches: medians of known series, and clocks that differ.

/// A batch begun at `begun` that took `making` and then waited `waiting`.
remote::FramedHeader begun_batch(std::int64_t begun, std::int64_t making, std::int64_t waiting,
                                 std::uint64_t producer = 1) {
  return {.producer = producer,
          .begun_ns = begun,
          .ready_ns = begun + making,
          .sent_ns = begun + making + waiting};
}

TEST(HandOffTimes, MediansAndFarQuantilesOfKnownSeries) {
  remote::HandOffTimes times;
  EXPECT_EQ(times.summary().batches, 0U);
  for (std::int64_t i = 1; i <= 1000; ++i) {
    const remote::FramedHeader header = begun_batch(1'000'000 * i, 2000 * i, 30 * i);
    times.add(header, header.sent_ns + 7 * i, true);
  }
  const remote::HandOffSummary summary = times.summary();
  EXPECT_EQ(summary.batches, 1000U);
  EXPECT_EQ(summary.other_clocks, 0U);
  EXPECT_DOUBLE_EQ(summary.making_median, 1e-9 * 2000 * 500);
  EXPECT_DOUBLE_EQ(summary.making_p99, 1e-9 * 2000 * 990);
  EXPECT_DOUBLE_EQ(summary.waiting_median, 1e-9 * 30 * 500);
  EXPECT_DOUBLE_EQ(summary.way_median, 1e-9 * 7 * 500);
  EXPECT_DOUBLE_EQ(summary.way_p99, 1e-9 * 7 * 990);
}

TEST(HandOffTimes, QuantilesAreTheNearestValuesAbove) {
  remote::HandOffTimes times;
  for (std::int64_t i = 1; i <= 5; ++i) {
    const remote::FramedHeader header = begun_batch(1'000'000 * i, 2000 * i, 30 * i);
    times.add(header, header.sent_ns + 7 * i, true);
  }
  EXPECT_DOUBLE_EQ(times.summary().making_median, 1e-9 * 2000 * 3);
  EXPECT_DOUBLE_EQ(times.summary().making_p99, 1e-9 * 2000 * 5);
}

TEST(HandOffTimes, OtherClocksAreTakenBeyondTheShortestWay) {
  remote::HandOffTimes times;
  for (std::int64_t i = 1; i <= 101; ++i) {
    for (const std::uint64_t producer : {1, 2}) {
      const remote::FramedHeader header = begun_batch(1'000'000 * i, 10, 10, producer);
      // One clock is an hour behind, the other an hour ahead.
      const std::int64_t off = producer == 1 ? 3'600'000'000'000 : -3'600'000'000'000;
      times.add(header, header.sent_ns + off + 500 + 9 * i, false);
    }
  }
  const remote::HandOffSummary summary = times.summary();
  EXPECT_EQ(summary.batches, 202U);
  EXPECT_EQ(summary.other_clocks, 202U);
  EXPECT_DOUBLE_EQ(summary.way_median, 1e-9 * 9 * 50);
  EXPECT_DOUBLE_EQ(summary.way_p99, 1e-9 * 9 * 99);
}

TEST(HandOffTimes, UnknownOrNegativeTimesAreLeftOut) {
  remote::HandOffTimes times;
  times.add({.producer = 1}, 5, true);
  times.add({.producer = 1, .sent_ns = 5}, 5, true);
  times.add(begun_batch(100, 5, -1), 1000, true);
  times.add(begun_batch(100, -5, 10), 1000, true);
  times.add(begun_batch(100, 5, 5), 109, true);
  times.add({.producer = 1, .ready_ns = INT64_MIN, .sent_ns = INT64_MAX}, 5, false);
  times.add({.producer = 1, .ready_ns = INT64_MIN, .sent_ns = INT64_MIN}, INT64_MAX, false);
  EXPECT_EQ(times.summary().batches, 0U);
  times.add({.producer = 1, .ready_ns = 100, .sent_ns = 107}, 110, true);
  EXPECT_EQ(times.summary().batches, 1U);
  EXPECT_DOUBLE_EQ(times.summary().waiting_median, 7e-9);
  EXPECT_DOUBLE_EQ(times.summary().making_median, 0);
}

TEST(HandOffTimes, MemoryIsBounded) {
  remote::HandOffTimes times;
  for (std::uint64_t i = 1; i <= 3 * remote::HandOffTimes::kSamples; ++i) {
    times.add(begun_batch(1'000'000, 5, 5, i), 2'000'000, false);  // each from another producer
  }
  EXPECT_EQ(times.summary().batches, remote::HandOffTimes::kProducers);
  for (std::uint64_t i = 1; i <= 3 * remote::HandOffTimes::kSamples; ++i) {
    times.add(begun_batch(1'000'000, 5, 5), 1'000'030, true);
  }
  EXPECT_EQ(times.summary().batches,
            remote::HandOffTimes::kProducers + 3 * remote::HandOffTimes::kSamples);
  EXPECT_DOUBLE_EQ(times.summary().way_median, 20e-9);
}

}  // namespace
}  // namespace penstock
