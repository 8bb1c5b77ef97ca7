// SPDX-License-Identifier: Apache-2.0
// Times of batches: medians of known series, and clocks that differ.
#include "feeders/remote/receive/hand_off_times.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

/// A batch begun at `begun` that took `making` and then waited `waiting`.
remote::FramedHeader batch(std::int64_t begun, std::int64_t making, std::int64_t waiting,
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
    const remote::FramedHeader header = batch(1'000'000 * i, 2000 * i, 30 * i);
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

TEST(HandOffTimes, OtherClocksAreTakenBeyondTheShortestWay) {
  remote::HandOffTimes times;
  for (std::int64_t i = 1; i <= 101; ++i) {
    for (const std::uint64_t producer : {1, 2}) {
      const remote::FramedHeader header = batch(1'000'000 * i, 10, 10, producer);
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

TEST(HandOffTimes, WhatIsNotKnownOrRunsBackwardsIsLeftOut) {
  remote::HandOffTimes times;
  times.add({.producer = 1}, 5, true);
  times.add({.producer = 1, .sent_ns = 5}, 5, true);
  times.add(batch(100, 5, -1), 1000, true);
  times.add(batch(100, -5, 10), 1000, true);
  times.add(batch(100, 5, 5), 109, true);
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
    times.add(batch(1'000'000, 5, 5, i), 2'000'000, false);  // each from another producer
  }
  EXPECT_EQ(times.summary().batches, remote::HandOffTimes::kProducers);
  for (std::uint64_t i = 1; i <= 3 * remote::HandOffTimes::kSamples; ++i) {
    times.add(batch(1'000'000, 5, 5), 1'000'030, true);
  }
  EXPECT_EQ(times.summary().batches,
            remote::HandOffTimes::kProducers + 3 * remote::HandOffTimes::kSamples);
  EXPECT_DOUBLE_EQ(times.summary().way_median, 20e-9);
}

}  // namespace
}  // namespace penstock
