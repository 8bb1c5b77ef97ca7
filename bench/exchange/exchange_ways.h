// SPDX-License-Identifier: Apache-2.0
// Ways in which ranks can add their gradients, be they threads of this process or processes, by the
// names that users type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "dataflow/clock.h"
#include "trainer/collective.h"
#include "trainer/collectives/all_reduce.h"
#include "trainer/collectives/wire_format.h"
#include "trainer/processes.h"

namespace penstock {

/// The group that adds in shared memory, in the order of ranks: what `penstock run` uses for ranks
/// of one host and devices without links of their own.
inline constexpr std::string_view kSharedMemory = "shared-memory";
/// MPI_Allreduce as MPI does it best, in a call that blocks; and as a run can use it, in one that
/// is asked for its end.
inline constexpr std::string_view kMpi = "mpi", kMpiNonblocking = "mpi-nonblocking";
/// No exchange: see memory_bound_way().
inline constexpr std::string_view kReadAndWrite = "read-and-write";

struct ExchangeWay {
  std::string name{};
  /// One device for each rank of this process, which outlive the group, as the clock does.
  std::function<std::unique_ptr<CollectiveGroup>(std::span<Device* const>, Clock&, std::stop_token)>
      make{};
  std::optional<AllReducePlan> plan{};  ///< none: without messages
  WireFormat wire = WireFormat::f32;
  bool adds = true;
};

struct ExchangeWish {
  std::string algorithms = "all";  ///< names, separated by commas
  std::string all_reduce_spec{};   ///< empty: none
  std::int32_t local_ranks = 1;
  Nanoseconds timeout = std::chrono::minutes(1);
  WireFormat wire = WireFormat::f32;  ///< of all but MPI's, which adds f32
  Processes* processes = nullptr;     ///< null: ranks are threads
};

/// Every name once, in the order wished for; the spec last, by its text. "all" leaves MPI's out
/// where ranks are threads. Throws ConfigError for names that are none, and for MPI's there.
std::vector<ExchangeWay> exchange_ways(const ExchangeWish& wish);

/// What an exchange cannot be faster than: each rank reads its own tensor from memory once and
/// writes it once, all ranks at a time, and nothing is added.
ExchangeWay memory_bound_way();

/// What the messages of one exchange of all buckets come to, without those by which ranks meet.
ExchangeCost exchange_cost(const ExchangeWay& way, std::span<const std::size_t> buckets,
                           std::int32_t ranks, std::int32_t local_ranks);

}  // namespace penstock
