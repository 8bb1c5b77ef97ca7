// SPDX-License-Identifier: Apache-2.0
// Measures exchanges alone, without model or input. Every rank, a thread or a process, has a tensor
// of gradients in memory and adds it to the tensors of the others, bucket after bucket. The
// algorithms take turns, in an order that changes with every iteration, so that a disturbance
// affects all of them.
//
// With threads, an iteration lasts from the start of the first rank until the last rank has all
// sums. Clocks of processes may differ, so processes synchronise first, and the iteration is the
// longest time of any rank.
//
// Reports the results of exchange measurements, as figures, as a table and as JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "bench/record/statistics.h"
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

/// Everything that a reader needs to know about the numbers.
struct ExchangeReport {
  std::string command{}, model{};
  ExchangePlan plan{};
  std::string ranks_are = "threads";  ///< or processes
  std::int32_t local_ranks = 1;
  std::vector<WayTimes> times{};  ///< by way
  std::vector<std::optional<collectives::ExchangeCost>>
      costs{};           ///< by way; none: it sends no messages
  bool stopped = false;  ///< before all iterations were complete
  std::vector<std::string> notes{};

  double bytes() const;  ///< all gradients of one rank
};

/// The two figures of nccl-tests, for S bytes, n ranks and the median of t: algbw = S / t, and
/// busbw = algbw * 2 (n - 1) / n, which a ring would move over each of its links. 1 GB is 1e9
/// bytes.
struct ExchangeFigures {
  Spread ms{};
  double algbw_gb_per_s = 0, busbw_gb_per_s = 0;
};
/// Needs at least one time.
ExchangeFigures exchange_figures(const std::vector<double>& seconds, double bytes,
                                 std::int32_t ranks);

/// The speed of `way` relative to `other`: the ratio of times, other over way, in each iteration.
/// None if they have no common iteration.
std::optional<Spread> speed_against(const WayTimes& way, const WayTimes& other);

void write_exchange_text(const ExchangeReport& report, std::ostream& out);
nlohmann::ordered_json to_json(const ExchangeReport& report);

}  // namespace penstock::scaling
