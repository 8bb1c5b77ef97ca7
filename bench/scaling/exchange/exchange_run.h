// SPDX-License-Identifier: Apache-2.0
// Measures exchanges alone, without model or input. Every rank, a thread or a process, has a tensor
// of gradients in memory and adds it to the tensors of the others, bucket after bucket. The
// algorithms take turns, in an order that changes with every iteration, so that a disturbance
// affects all of them.
//
// With threads, an iteration lasts from the start of the first rank until the last rank has all
// sums. Clocks of processes may differ, so processes synchronise first, and the iteration is the
// longest time of any rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "bench/scaling/exchange/exchange_ways.h"
#include "dataflow/clock.h"
#include "trainer/buckets.h"
#include "trainer/graph.h"

namespace penstock::scaling {

struct ExchangePlan {
  std::vector<std::size_t> buckets{};  ///< elements per bucket; not empty
  std::int32_t ranks = 2;
  std::int64_t warmup = 0, iterations = 1;         ///< of each algorithm
  std::uint64_t seed = 1;                          ///< of the order of algorithms
  Nanoseconds patience = std::chrono::minutes(1);  ///< timeout for processes to meet
};

struct WayTimes {
  std::string name{};
  bool checked = false;           ///< one exchange of known numbers gave the correct sums
  std::vector<double> seconds{};  ///< per iteration after the warm-up
  WireFormat wire = WireFormat::f32;
  bool adds = true;  ///< false for memory_bound_way()
};

/// Returns the times of each way, in the order of `ways`. A stop request ends it with the times so
/// far. Throws Error if a sum is wrong or a rank fails. Each rank's thread takes part in simulated
/// time.
///
/// With `processes`, all processes must call it with the same plan and ways. This process is one
/// rank, on the calling thread, and all processes return the same times. They stop together as soon
/// as one of them gets a stop request. null: all ranks are threads.
std::vector<WayTimes> measure_exchanges(const ExchangePlan& plan, std::span<const ExchangeWay> ways,
                                        Clock& clock, std::stop_token stop,
                                        cluster::Processes* processes = nullptr);

/// Elements of each trainable tensor, in the order of nodes from the last to the first.
std::vector<std::size_t> gradient_sizes(const Graph& graph);

/// Elements of each bucket in which a run would exchange them.
std::vector<std::size_t> bucket_sizes(std::span<const std::size_t> sizes,
                                      const BucketLimits& limits);

}  // namespace penstock::scaling
