// SPDX-License-Identifier: Apache-2.0
// Measures exchanges alone: every rank, a thread of this process or a process of its own, has a
// tensor of gradients in memory, and adds it to those of the others, bucket after bucket. The ways
// to do so take turns, in an order that changes from iteration to iteration, so that what disturbs
// the machine disturbs all of them.
//
// An iteration of threads begins when the first rank begins and ends when the last one has all
// sums. Clocks of processes may differ: there, ranks meet, and the iteration is the longest of what
// each rank found. Nothing else runs meanwhile: no model, no input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "bench/exchange/exchange_ways.h"
#include "dataflow/clock.h"

namespace penstock {

struct ExchangePlan {
  std::vector<std::size_t> buckets{};  ///< elements of each; not empty
  std::int32_t ranks = 2;
  std::int64_t warmup = 0, iterations = 1;         ///< of each way
  std::uint64_t seed = 1;                          ///< of the ways' order
  Nanoseconds patience = std::chrono::minutes(1);  ///< of processes that meet
};

struct WayTimes {
  std::string name{};
  bool checked = false;           ///< one exchange of known numbers had the sums that it must have
  std::vector<double> seconds{};  ///< of each whole iteration after the warm-up
  WireFormat wire = WireFormat::f32;
  bool adds = true;  ///< false: memory_bound_way()'s
};

/// One for each way, in their order. A stop request ends it with what was measured by then. Throws
/// Error where a sum is wrong, or a rank fails. Each rank's thread takes part in simulated time.
///
/// With `processes`, called by all of them with the same plan and ways; this one is one rank, on
/// the calling thread, and all find the same times. They stop together once one of them is told to.
/// null: all ranks are threads.
std::vector<WayTimes> measure_exchanges(const ExchangePlan& plan, std::span<const ExchangeWay> ways,
                                        Clock& clock, std::stop_token stop,
                                        Processes* processes = nullptr);

}  // namespace penstock
