// SPDX-License-Identifier: Apache-2.0
// The algorithms with which ranks can add their gradients, by the names that users type. Ranks are
// threads of this process or processes.
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
#include "trainer/cluster/processes.h"
#include "trainer/collective.h"
#include "trainer/collectives/all_reduce.h"
#include "trainer/wire_format.h"

namespace penstock::scaling {

/// Adds in shared memory, in the order of ranks. `penstock run` uses it for ranks of one host and
/// devices without direct links.
inline constexpr std::string_view kSharedMemory = "shared-memory";
/// MPI_Allreduce, blocking (the fastest form) and non-blocking with polling (the form that a run
/// can use).
inline constexpr std::string_view kMpi = "mpi", kMpiNonblocking = "mpi-nonblocking";
/// No exchange: see memory_bound_way().
inline constexpr std::string_view kReadAndWrite = "read-and-write";

struct ExchangeWay {
  std::string name{};
  /// `make` takes one device per rank of this process. Devices and clock outlive the group.
  std::function<std::unique_ptr<CollectiveGroup>(std::span<Device* const>, Clock&, std::stop_token)>
      make{};
  std::optional<collectives::AllReducePlan> plan{};  ///< none: it sends no messages
  WireFormat wire = WireFormat::f32;
  bool adds = true;
};

struct ExchangeArguments {
  std::string algorithms = "all";  ///< names, separated by commas
  std::string all_reduce_spec{};   ///< empty: none
  std::int32_t local_ranks = 1;
  Nanoseconds timeout = std::chrono::minutes(1);
  WireFormat wire = WireFormat::f32;        ///< of all but MPI's ways, which add f32
  cluster::Processes* processes = nullptr;  ///< null: ranks are threads
};

/// Returns every name once, in the requested order; the spec comes last, named by its text. "all"
/// excludes MPI if ranks are threads. Throws ConfigError for unknown names, and for MPI with
/// threads.
std::vector<ExchangeWay> exchange_ways(const ExchangeArguments& arguments);

/// The lower bound of an exchange: all ranks at the same time read their tensors from memory once
/// and write them once. Nothing is added.
ExchangeWay memory_bound_way();

/// The cost of the messages of one exchange of all buckets, without synchronisation messages.
collectives::ExchangeCost exchange_cost(const ExchangeWay& way,
                                        std::span<const std::size_t> buckets, std::int32_t ranks,
                                        std::int32_t local_ranks);

}  // namespace penstock::scaling
