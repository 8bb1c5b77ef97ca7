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
using Estimate = remote::ClockBounds::Estimate;
constexpr Estimate kOurs{};

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
           const std::optional<Estimate>& ahead = kOurs) {
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
  constexpr Estimate kAhead{.offset_ns = 10e6, .bound_ns = 3e5};
  // Sent 10 ms earlier by the consumer's clock, so in transit for 10 ms more.
  add(batch(5'000, 0), 2'000'000, kAhead);
  // A batch may seem to arrive before it was sent, within the bound.
  add(batch(5'000, 0), -10'200'000, kAhead);
  add(batch(5'000, 0), -10'400'000, kAhead);
  const auto found = facts(begin);
  EXPECT_DOUBLE_EQ(found.at("batches_timed_in_window"), 2);
  EXPECT_DOUBLE_EQ(found.at("hand_off_window_mean_s"), 0.006);
  EXPECT_DOUBLE_EQ(found.at("hand_off_clock_bound_us"), 300);
}

TEST_F(DeliveryTimesTest, TheWidestBoundOfAllProducersIsStated) {
  add(batch(1, 1, 7), 5, Estimate{.offset_ns = 0, .bound_ns = 5e5});
  add(batch(1, 1, 8), 5, Estimate{.offset_ns = 0, .bound_ns = 2e5});
  add(batch(1, 1, 7), 5, Estimate{.offset_ns = 0, .bound_ns = 1e5});
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
  for (std::uint64_t i = 1; i <= 3 * remote::kTimedProducers; ++i) {
    add(batch(5, 5, i), 100, std::nullopt);
  }
  EXPECT_DOUBLE_EQ(facts(begin).at("batches_timed_in_window"), double{remote::kTimedProducers});
}

// ---- hand off times ----------------------------------------------------------

// Times of batches: medians of known series, and clocks that differ.

/// Of batches 1 to `count`, whose times grow with their number.
remote::HandOffSummary summary_of(std::int64_t count) {
  remote::HandOffTimes times;
  for (std::int64_t i = 1; i <= count; ++i) {
    const remote::FramedHeader header = batch(2000 * i, 30 * i);
    times.add(header, header.sent_ns + 7 * i, true);
  }
  return times.summary();
}

TEST(HandOffTimes, MediansAndFarQuantilesOfKnownSeries) {
  EXPECT_EQ(summary_of(0).batches, 0U);
  const remote::HandOffSummary summary = summary_of(1000);
  EXPECT_EQ(summary.batches, 1000U);
  EXPECT_EQ(summary.other_clocks, 0U);
  EXPECT_DOUBLE_EQ(summary.making.median, 1e-9 * 2000 * 500);
  EXPECT_DOUBLE_EQ(summary.making.p99, 1e-9 * 2000 * 990);
  EXPECT_DOUBLE_EQ(summary.waiting.median, 1e-9 * 30 * 500);
  EXPECT_DOUBLE_EQ(summary.way.median, 1e-9 * 7 * 500);
  EXPECT_DOUBLE_EQ(summary.way.p99, 1e-9 * 7 * 990);
}

TEST(HandOffTimes, QuantilesAreTheNearestValuesAbove) {
  EXPECT_DOUBLE_EQ(summary_of(5).making.median, 1e-9 * 2000 * 3);
  EXPECT_DOUBLE_EQ(summary_of(5).making.p99, 1e-9 * 2000 * 5);
}

TEST(HandOffTimes, OtherClocksAreTakenBeyondTheShortestWay) {
  remote::HandOffTimes times;
  for (std::int64_t i = 1; i <= 101; ++i) {
    for (const std::uint64_t producer : {1, 2}) {
      const remote::FramedHeader header = batch(10, 10, producer);
      // One clock is an hour behind, the other an hour ahead.
      const std::int64_t off = producer == 1 ? 3'600'000'000'000 : -3'600'000'000'000;
      times.add(header, header.sent_ns + off + 500 + 9 * i, false);
    }
  }
  const remote::HandOffSummary summary = times.summary();
  EXPECT_EQ(summary.batches, 202U);
  EXPECT_EQ(summary.other_clocks, 202U);
  EXPECT_DOUBLE_EQ(summary.way.median, 1e-9 * 9 * 50);
  EXPECT_DOUBLE_EQ(summary.way.p99, 1e-9 * 9 * 99);
}

TEST(HandOffTimes, UnknownOrNegativeTimesAreLeftOut) {
  remote::HandOffTimes times;
  times.add({.producer = 1}, 5, true);
  times.add({.producer = 1, .sent_ns = 5}, 5, true);
  times.add(batch(5, -1), kBegun + 900, true);
  times.add(batch(-5, 10), kBegun + 900, true);
  times.add(batch(5, 5), kBegun + 9, true);
  times.add({.producer = 1, .ready_ns = INT64_MIN, .sent_ns = INT64_MAX}, 5, false);
  times.add({.producer = 1, .ready_ns = INT64_MIN, .sent_ns = INT64_MIN}, INT64_MAX, false);
  EXPECT_EQ(times.summary().batches, 0U);
  times.add({.producer = 1, .ready_ns = 100, .sent_ns = 107}, 110, true);
  EXPECT_EQ(times.summary().batches, 1U);
  EXPECT_DOUBLE_EQ(times.summary().waiting.median, 7e-9);
  EXPECT_DOUBLE_EQ(times.summary().making.median, 0);
}

TEST(HandOffTimes, MemoryIsBounded) {
  remote::HandOffTimes times;
  for (std::uint64_t i = 1; i <= 3 * remote::HandOffTimes::kSamples; ++i) {
    times.add(batch(5, 5, i), kBegun + 1'000'000, false);  // each from another producer
  }
  EXPECT_EQ(times.summary().batches, remote::kTimedProducers);
  for (std::uint64_t i = 1; i <= 3 * remote::HandOffTimes::kSamples; ++i) {
    times.add(batch(5, 5), kBegun + 30, true);
  }
  EXPECT_EQ(times.summary().batches, remote::kTimedProducers + 3 * remote::HandOffTimes::kSamples);
  EXPECT_DOUBLE_EQ(times.summary().way.median, 20e-9);
}

}  // namespace
}  // namespace penstock
