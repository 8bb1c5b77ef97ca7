// SPDX-License-Identifier: Apache-2.0
#include "bench/statistics/queue_replay.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "dataflow/random.h"

namespace penstock {
namespace {

std::vector<double> exponential_times(std::size_t count, double mean, std::uint64_t seed) {
  Random random(seed);
  std::vector<double> times;
  for (std::size_t k = 0; k < count; ++k) times.push_back(-mean * std::log(1 - random.uniform()));
  double sum = 0;
  for (const double time : times) sum += time;
  for (double& time : times) time *= mean * static_cast<double>(count) / sum;
  return times;
}

/// Of the time of a consumer that takes `consumer_ms` for each batch.
double starved_percent(const std::vector<double>& producer, double consumer_ms, std::size_t slots) {
  return 100 * (1 - consumer_ms / statistics::replay_queue(producer, std::vector{consumer_ms},
                                                           {.slots = slots}));
}

TEST(QueueReplay, SteadyTimesGiveTheSlowerOfBoth) {
  for (const std::size_t slots : {1U, 2U, 9U}) {
    EXPECT_NEAR(statistics::replay_queue(std::vector{5.0}, std::vector{4.0}, {.slots = slots}), 5,
                1e-9);
    EXPECT_NEAR(statistics::replay_queue(std::vector{4.0}, std::vector{5.0}, {.slots = slots}), 5,
                1e-9);
  }
}

TEST(QueueReplay, ExponentialTimesGiveTheQueueOfMarkov) {
  // Finished, unconsumed batches form a birth-death chain: 0 starves the consumer, and slots + 2
  // (one being consumed, one held by the producer) blocks the producer. This is the M/M/1/K queue
  // of K = slots + 2; the probabilities of its states are proportional to rho^n.
  const std::vector<double> consumer = exponential_times(50000, 10, 1);
  for (const double produce_ms : {8.0, 10.0, 14.0}) {
    const std::vector<double> producer = exponential_times(50000, produce_ms, 2);
    for (const std::size_t slots : {1U, 2U, 5U}) {
      const double rho = 10 / produce_ms;
      double sum = 0;
      for (std::size_t n = 0; n <= slots + 2; ++n) sum += std::pow(rho, n);
      const double expected = 10 / (1 - 1 / sum);
      const double ms = statistics::replay_queue(producer, consumer,
                                                 {.slots = slots, .batches = 300000, .seed = 3});
      EXPECT_NEAR(ms, expected, 0.01 * expected) << produce_ms << " ms, " << slots << " slots";
    }
  }
}

TEST(QueueReplay, MoreSlotsNeverCostAnything) {
  const std::vector<double> producer = exponential_times(500, 9, 4);
  const std::vector<double> consumer = exponential_times(500, 10, 5);
  double before = statistics::replay_queue(producer, consumer, {.slots = 1});
  for (const std::size_t slots : {2U, 3U, 4U, 6U, 8U, 16U, 64U}) {
    const double ms = statistics::replay_queue(producer, consumer, {.slots = slots});
    EXPECT_LE(ms, before);
    before = ms;
  }
  EXPECT_GE(before, 9.8);  // the consumer's time
}

TEST(QueueReplay, AStallOutlastsTheQueueUnlessItIsDeep) {
  // A stall of 100 ms after 99 batches of 1 ms. The consumer takes 2.2 ms, so it needs a reserve of
  // 45 batches to survive the stall.
  std::vector<double> producer(99, 1.0);
  producer.push_back(100);
  EXPECT_GT(starved_percent(producer, 2.2, 2), 20);
  EXPECT_LT(starved_percent(producer, 2.2, 60), starved_percent(producer, 2.2, 2) / 2);
}

TEST(QueueReplay, ConsecutiveTimesStayTogether) {
  // The same times, once in blocks of fast and slow ones, once alternating. Only a queue as deep as
  // a block evens out the blocks.
  std::vector<double> blocks, alternating;
  for (int k = 0; k < 400; ++k) {
    blocks.push_back(k / 20 % 2 == 0 ? 1.0 : 9.0);
    alternating.push_back(k % 2 == 0 ? 1.0 : 9.0);
  }
  EXPECT_GT(starved_percent(blocks, 5, 4), 20);
  EXPECT_LT(starved_percent(alternating, 5, 4), 10);
}

TEST(QueueReplay, TheSeedDecides) {
  const std::vector<double> producer = exponential_times(100, 9, 6);
  const auto replay = [&](std::uint64_t seed) {
    return statistics::replay_queue(producer, std::vector{10.0}, {.slots = 2, .seed = seed});
  };
  EXPECT_EQ(replay(1), replay(1));
  EXPECT_NE(replay(1), replay(2));
}

TEST(QueueReplay, TimesOfNothingGiveNothing) {
  EXPECT_EQ(statistics::replay_queue(std::vector{0.0}, std::vector{0.0}, {}), 0);
  EXPECT_NEAR(statistics::replay_queue(std::vector{0.0, 0.0}, std::vector{3.0}, {.batches = 0}), 3,
              1e-12);
}

TEST(QueueReplay, WhatIsNoTimeOrNoQueueIsRefused) {
  const std::vector<double> ms{1.0};
  EXPECT_THROW(statistics::replay_queue({}, ms, {}), std::logic_error);
  EXPECT_THROW(statistics::replay_queue(ms, std::vector{-1.0}, {}), std::logic_error);
  EXPECT_THROW(statistics::replay_queue(ms, std::vector{std::nan("")}, {}), std::logic_error);
  EXPECT_THROW(statistics::replay_queue(ms, ms, {.slots = 0}), std::logic_error);
}

}  // namespace
}  // namespace penstock
