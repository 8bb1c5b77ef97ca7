// SPDX-License-Identifier: Apache-2.0
// How ranks exchange, where there is more than one way.
#pragma once

#include <cstdint>
#include <string>

#include "dataflow/probe.h"
#include "trainer/collectives/all_reduce.h"
#include "trainer/collectives/wire_format.h"

namespace penstock {

/// shared_memory: of one host. mpi: MPI's own all-reduce, as a call that others are looked after
/// during. mpi_blocking: the same as the call that MPI tunes, for comparison. links: an algorithm
/// of ours, in messages. fastest: shared_memory where all ranks are of one host; else links.
enum class ExchangeMethod : std::uint8_t { fastest, shared_memory, mpi, mpi_blocking, links };

/// The same on all ranks.
struct ExchangeChoice {
  ExchangeMethod method = ExchangeMethod::fastest;
  AllReducePlan plan{};               ///< of links; empty: tree and ring, by size
  std::int32_t local_ranks = 1;       ///< of a group of hierarchical algorithms
  WireFormat wire = WireFormat::f32;  ///< of all_reduce_sum; other calls move f32
  Counter* nonfinite = nullptr;  ///< gets sums that a wire of 16 bits made, or found, not finite
};

/// "tree up to 32768 elements, ring in 2 pieces beyond".
std::string describe(const AllReducePlan& plan);

/// The tree for little and the ring for much.
AllReducePlan default_all_reduce_plan();

}  // namespace penstock
