// SPDX-License-Identifier: Apache-2.0
// The formulas of projections against values calculated by hand.
#include "bench/scaling/projection/topology.h"

#include <gtest/gtest.h>

#include <string>

#include "bench/scaling/projection/measured_step.h"
#include "dataflow/error.h"

namespace penstock {
namespace {

constexpr double kBytes = 102.2e6, kBandwidth = 12.5e9;  // ResNet-50 in f32, 100 Gbit/s

double ms(double seconds) { return 1e3 * seconds; }

TEST(ExchangeTime, Ring) {
  EXPECT_DOUBLE_EQ(scaling::ring_seconds(1, kBytes, kBandwidth, 1e-5), 0);
  EXPECT_NEAR(ms(scaling::ring_seconds(2, kBytes, kBandwidth, 0)), 8.176, 1e-9);
  EXPECT_NEAR(ms(scaling::ring_seconds(8, kBytes, kBandwidth, 0)), 14.308, 1e-9);
  EXPECT_NEAR(ms(scaling::ring_seconds(8, 0, kBandwidth, 1e-5)), 0.14, 1e-9);  // 14 messages
}

TEST(ExchangeTime, Tree) {
  EXPECT_DOUBLE_EQ(scaling::tree_seconds(1, kBytes, kBandwidth, 1e-5, 1), 0);
  EXPECT_NEAR(ms(scaling::tree_seconds(8, kBytes, kBandwidth, 0, 0.5)), 32.704, 1e-9);
  EXPECT_NEAR(ms(scaling::tree_seconds(8, 0, kBandwidth, 1e-5, 1)), 0.06, 1e-9);  // 2 x 3 messages
  EXPECT_NEAR(ms(scaling::tree_seconds(9, 0, kBandwidth, 1e-5, 1)), 0.08, 1e-9);  // 2 x 4
}

TEST(ExchangeTime, BytepsGoesFromARingToOnePassWithItsServers) {
  const auto at = [](std::int64_t servers) {
    return ms(scaling::byteps_seconds(8, servers, kBytes, kBandwidth, 0));
  };
  EXPECT_NEAR(at(0), 14.3, 0.05);
  EXPECT_NEAR(at(2), 12.05, 0.05);  // 112 x 102.2 MB / (76 x 12.5 GB/s)
  EXPECT_NEAR(at(4), 10.4, 0.05);
  EXPECT_NEAR(at(8), 8.2, 0.05);
  EXPECT_DOUBLE_EQ(at(9), at(8));
  EXPECT_DOUBLE_EQ(scaling::byteps_seconds(1, 4, kBytes, kBandwidth, 1), 0);
}

TEST(ExchangeTime, ServersOfTheirOwnCarryAllRanks) {
  const auto at = [](std::int64_t servers) {
    return ms(scaling::parameter_server_seconds(8, servers, 1, kBytes, kBandwidth, 0));
  };
  EXPECT_NEAR(at(2), 32.7, 0.05);
  EXPECT_NEAR(at(4), 16.4, 0.05);
  EXPECT_NEAR(at(8), 8.2, 0.05);
  EXPECT_NEAR(at(16), 8.2, 0.05);  // then a worker's own link is the limit
  EXPECT_NEAR(ms(scaling::parameter_server_seconds(8, 8, 4, kBytes, kBandwidth, 0)), 32.7, 0.05);
}

TEST(ExchangeTime, SlowestOfManyIsWhatOrderStatisticsSay) {
  // The expected largest of n normal values, from tables of order statistics.
  for (const auto& [n, expected] :
       {std::pair{2, 0.5642}, {4, 1.0294}, {10, 1.5388}, {100, 2.5076}}) {
    EXPECT_NEAR(scaling::slowest_of(n), expected, 0.05 * expected) << n;
  }
  EXPECT_DOUBLE_EQ(scaling::slowest_of(1), 0);
}

TEST(Overlap, BucketsQueueBehindEachOther) {
  // Ready 10, 5 and 0 ms before the end of backward, taking 6, 6 and 2 ms: done at -4, 2 and 4.
  const scaling::ReadyBucket buckets[] = {{6, 10}, {6, 5}, {2, 0}};
  const scaling::ExchangeCourse course =
      scaling::overlapped(buckets, [](double bytes) { return bytes; });
  EXPECT_DOUBLE_EQ(course.busy_ms, 14);
  EXPECT_DOUBLE_EQ(course.exposed_ms, 4);
}

TEST(Overlap, WhatIsDoneBeforeBackwardEndsDoesNotShow) {
  const scaling::ReadyBucket buckets[] = {{6, 10}};
  EXPECT_DOUBLE_EQ(scaling::overlapped(buckets, [](double bytes) { return bytes; }).exposed_ms, 0);
  EXPECT_DOUBLE_EQ(scaling::overlapped({}, [](double bytes) { return bytes; }).exposed_ms, 0);
}

TEST(Overlap, ClosedFormHidesAShareOfTheCompute) {
  EXPECT_DOUBLE_EQ(scaling::hidden_share(30, 40, 0.5).exposed_ms, 10);
  EXPECT_DOUBLE_EQ(scaling::hidden_share(30, 40, 0).exposed_ms, 30);
  EXPECT_DOUBLE_EQ(scaling::hidden_share(30, 40, 1).exposed_ms, 0);
}

double exchange_ms(const std::string& name, std::int64_t ranks, const std::string& topology) {
  const scaling::Topology parsed = scaling::parse_topology(topology);
  for (const scaling::ExchangeModel& model : scaling::exchange_models()) {
    if (model.name == name) return ms(model.seconds(kBytes, ranks, parsed));
  }
  ADD_FAILURE() << name;
  return 0;
}

TEST(Topology, HostsAreFilledOneAfterTheOther) {
  const std::string four =
      "devices=4,local=100,link=10,efficiency=0.5,latency_us=0,local_latency_us=0";
  // One host: 2 (4-1)/4 S / 100 GB/s, without a network link.
  EXPECT_NEAR(exchange_ms("ring", 4, four), 1.533, 1e-3);
  EXPECT_NEAR(exchange_ms("hierarchical", 4, four), 1.533, 1e-3);
  // Two hosts: the ring passes each link once, 2 (8-1)/8 S / 5 GB/s.
  EXPECT_NEAR(exchange_ms("ring", 8, four), 35.77, 1e-2);
  // Inside a host, then 2 (2-1)/2 S / 5 GB/s.
  EXPECT_NEAR(exchange_ms("hierarchical", 8, four), 1.533 + 20.44, 1e-2);
  EXPECT_EQ(scaling::parse_topology(four).hosts_of(9), 3);
}

TEST(Topology, MessagesBetweenHostsAreCountedAsNcclDoes) {
  const std::string text =
      "devices=4,local=1e6,link=1e6,efficiency=1,latency_us=10,local_latency_us=1";
  // 2 (8-1) = 14 hops, 2 (2-1) of them to the other host: 2 x 10 + 12 x 1 us.
  EXPECT_NEAR(exchange_ms("ring", 8, text), 0.032, 1e-3);
}

TEST(Topology, ImpossibleValuesAreRefused) {
  for (const std::string text :
       {"devices=0", "link=0", "efficiency=1.5", "latency_us=-1", "speed=1"}) {
    EXPECT_THROW(scaling::parse_topology(text), ConfigError) << text;
  }
}

}  // namespace
}  // namespace penstock
